import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

export interface Certificate {
  readonly certPath: string;
  readonly keyPath: string;
  readonly cert: string;
  readonly key: string;
  /** Makes a new certificate of this name at the same paths. */
  renew(name: string): void;
}

/** A self-signed certificate for 127.0.0.1, or null where there is no openssl to make one. */
export function makeCertificate(t: TestContext, name: string): Certificate | null {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-tls-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const certPath = join(folder, 'cert.pem');
  const keyPath = join(folder, 'key.pem');
  const renew = (subject: string): void => {
    const options = '-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'.split(' ');
    const names = ['-subj', `/CN=${subject}`, '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'];
    execFileSync('openssl', ['req', ...options, ...names, '-keyout', keyPath, '-out', certPath], {
      stdio: 'pipe',
      timeout: 20_000,
    });
  };
  try {
    renew(name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    t.skip('openssl is not installed');
    return null;
  }
  return {
    certPath,
    keyPath,
    get cert() {
      return readFileSync(certPath, 'utf8');
    },
    get key() {
      return readFileSync(keyPath, 'utf8');
    },
    renew,
  };
}
