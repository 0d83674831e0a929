import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { makeCertificate } from '../harness/certificate.ts';
import { connectClient } from '../harness/client.ts';
import { startTestRouter } from '../harness/router.ts';

const dockerfile = readFileSync(join(import.meta.dirname, '../../../deploy/Dockerfile'), 'utf8');
const [, words = '[]'] = /^HEALTHCHECK .*CMD (\[.*\])$/m.exec(dockerfile)!;

/** Rejects if the container is not healthy. */
function check(url: string): Promise<unknown> {
  const { hostname, port } = new URL(url);
  const [, ...args] = JSON.parse(words) as string[];
  const env = { ...process.env, TURNOUT_PROMETHEUS_HOST: hostname, TURNOUT_PROMETHEUS_PORT: port };
  return promisify(execFile)(process.execPath, args, { env });
}

test('the check of the image finds a router on any port, with TLS and at its limit of connections too', async (t) => {
  const plain = await startTestRouter(t, { maxConnections: 1 });
  await connectClient(t, plain.url);
  await check(plain.metricsUrl);
  await assert.rejects(check('http://127.0.0.1:1'));
  const certificate = makeCertificate(t, 'elsewhere');
  if (certificate === null) return;
  const { certPath: tlsCertPath, keyPath: tlsKeyPath } = certificate;
  const secure = await startTestRouter(t, { tlsCertPath, tlsKeyPath });
  await check(secure.metricsUrl);
});
