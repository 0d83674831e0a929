import { readFileSync } from 'node:fs';
import { type SecureContextOptions, createSecureContext } from 'node:tls';
import type { Config } from './options.ts';

/** The certificate of this server; with `ca`, clients must present one of these authorities. */
export function serverCertificates(config: Config): SecureContextOptions | null {
  if (config.tlsCertPath === undefined) return null;
  return checked({
    cert: read('--tls-cert-path', config.tlsCertPath),
    key: read('--tls-key-path', config.tlsKeyPath),
    ca: read('--tls-client-ca-path', config.tlsClientCaPath),
  });
}

/** The certificates for https workers. */
export function workerCertificates(config: Config): SecureContextOptions {
  return checked({
    ca: read('--ca-cert-path', config.caCertPath),
    cert: read('--client-cert-path', config.clientCertPath),
    key: read('--client-key-path', config.clientKeyPath),
  });
}

function read(option: string, path: string | undefined): Buffer | undefined {
  if (path === undefined) return undefined;
  try {
    return readFileSync(path);
  } catch (error) {
    throw new Error(`${option} ${path}: not readable (${(error as NodeJS.ErrnoException).code}).`, { cause: error });
  }
}

/** A certificate that does not fit its key fails here, not at the first connection. */
function checked(options: SecureContextOptions): SecureContextOptions {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  try {
    createSecureContext(given);
  } catch (error) {
    throw new Error(`TLS: these files don't make a certificate and its key: ${(error as Error).message}`, {
      cause: error,
    });
  }
  return given;
}
