import { rmSync, writeFileSync } from 'node:fs';
import { equal, notEqual, ok } from 'node:assert/strict';
import { test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { makeCertificate } from '../harness/certificate.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startTestRouter, untilIdle } from '../harness/router.ts';

const commonName = (socket: unknown): string | undefined =>
  String((socket as TLSSocket).getPeerCertificate().subject.CN);

test('https clients are served, and a large answer arrives whole', async (t) => {
  const certificate = makeCertificate(t, 'one');
  if (certificate === null) return;
  const engine = await startEngine(t);
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: ca } = certificate;
  const router = await startTestRouter(t, { workerUrls: [engine.url], tlsCertPath, tlsKeyPath });
  ok(router.url.startsWith('https://'));
  const client = await connectClient(t, router.url, { ca });
  const body = 'q'.repeat(300_000);
  client.write(request('POST', '/generate', body));
  const asked = await engine.next();
  equal((await asked.payload()).toString(), body);
  asked.connection.write(answer(200, 'a'.repeat(4_000_000)));
  equal((await client.answer()).payload.length, 4_000_000);
  client.write(HELLO);
  (await engine.next()).answer('"again"');
  equal((await client.answer()).text, '"again"');
});

test('a broken answer of unknown length does not look complete to an https client either', async (t) => {
  const certificate = makeCertificate(t, 'one');
  if (certificate === null) return;
  const engine = await startEngine(t);
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: ca } = certificate;
  const router = await startTestRouter(t, { workerUrls: [engine.url], tlsCertPath, tlsKeyPath });
  const client = await connectClient(t, router.url, { ca });
  client.write(HELLO);
  const asked = await engine.next();
  asked.connection.write('HTTP/1.1 200 OK\r\n\r\npart of it');
  await client.read('part of it');
  asked.connection.reset();
  equal(await client.untilEnded(), 'reset');
  const other = await connectClient(t, router.url, { ca });
  other.write(request('GET', '/liveness'));
  equal((await other.answer()).status, 200);
});

test('an https client that leaves stops the engine', async (t) => {
  const certificate = makeCertificate(t, 'one');
  if (certificate === null) return;
  const engine = await startEngine(t);
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: ca } = certificate;
  const router = await startTestRouter(t, { workerUrls: [engine.url], tlsCertPath, tlsKeyPath });
  for (const how of ['destroy', 'end'] as const) {
    const client = await connectClient(t, router.url, { ca });
    client.write(HELLO);
    const asked = await engine.next();
    asked.beginStream();
    asked.connection.write(chunk('data: 1\n\n'));
    await client.read('data: 1\n\n');
    client.socket[how]();
    await asked.connection.untilEnded();
  }
  await untilIdle(router);
});

test('what is not TLS is hung up on, and others are served on', async (t) => {
  const certificate = makeCertificate(t, 'one');
  if (certificate === null) return;
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: ca } = certificate;
  const router = await startTestRouter(t, { tlsCertPath, tlsKeyPath });
  const plain = await connectClient(t, router.url.replace('https', 'http'));
  plain.write(request('GET', '/liveness'));
  await plain.untilEnded();
  const client = await connectClient(t, router.url, { ca });
  client.write(request('GET', '/liveness'));
  equal((await client.answer()).status, 200);
});

test('reload: new connections get the new certificate, an open one goes on', async (t) => {
  const certificate = makeCertificate(t, 'old');
  if (certificate === null) return;
  const engine = await startEngine(t);
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: oldCert } = certificate;
  const router = await startTestRouter(t, { workerUrls: [engine.url], tlsCertPath, tlsKeyPath });
  const open = await connectClient(t, router.url, { ca: oldCert });
  equal(commonName(open.socket), 'old');
  open.write(HELLO);
  const asked = await engine.next();
  asked.beginStream();
  await open.read('\r\n\r\n');

  certificate.renew('new');
  notEqual(certificate.cert, oldCert);
  await router.reload();
  const fresh = await connectClient(t, router.url, { ca: certificate.cert });
  equal(commonName(fresh.socket), 'new');
  asked.connection.write(`${chunk('data: 1\n\n')}0\r\n\r\n`);
  equal(await open.read('0\r\n\r\n'), `${chunk('data: 1\n\n')}0\r\n\r\n`);
  open.write(request('GET', '/liveness'));
  equal((await open.answer()).text, 'OK');
});

test('reload with a broken or missing certificate keeps the old one', async (t) => {
  const certificate = makeCertificate(t, 'old');
  if (certificate === null) return;
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: ca } = certificate;
  const router = await startTestRouter(t, { tlsCertPath, tlsKeyPath });
  for (const spoil of [() => writeFileSync(tlsCertPath, 'half a certifi'), () => rmSync(tlsCertPath)]) {
    spoil();
    await router.reload();
    const client = await connectClient(t, router.url, { ca });
    equal(commonName(client.socket), 'old');
  }
});

test('https workers with --ca-cert-path: large bodies both ways, connection used again', async (t) => {
  const certificate = makeCertificate(t, 'engine');
  if (certificate === null) return;
  const { cert, key } = certificate;
  const engine = await startEngine(t, { tls: { cert, key } });
  const router = await startTestRouter(t, { workerUrls: [engine.url], caCertPath: certificate.certPath });
  const client = await connectClient(t, router.url);
  for (let i = 0; i < 2; i++) {
    client.write(request('POST', '/generate', 'q'.repeat(500_000)));
    const asked = await engine.next();
    equal((await asked.payload()).length, 500_000);
    asked.connection.write(answer(200, 'a'.repeat(2_000_000)));
    equal((await client.answer()).payload.length, 2_000_000);
  }
  equal(engine.connections.length, 1);
});

test('reload: new connections to https workers use the new files, also if none were set', async (t) => {
  const certificate = makeCertificate(t, 'engine');
  if (certificate === null) return;
  const { cert, key, certPath, keyPath } = certificate;
  const shown: (string | undefined)[] = [];
  const engine = await startEngine(t, {
    tls: { cert, key, ca: cert, requestCert: true, rejectUnauthorized: true },
    onConnection: ({ socket }) => shown.push(commonName(socket)),
    onRequest: (asked) => asked.answer('{}'),
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  equal((await send(t, router.url, HELLO)).status, 503);
  const files = { caCertPath: certPath, clientCertPath: certPath, clientKeyPath: keyPath };
  await router.reload(() => ({ ...router.config, ...files }));
  equal((await send(t, router.url, HELLO)).status, 200);
  equal(shown.at(-1), 'engine');
});

test('an https worker that the router has no reason to trust is not talked to', async (t) => {
  const certificate = makeCertificate(t, 'stranger');
  if (certificate === null) return;
  const { cert, key } = certificate;
  const engine = await startEngine(t, { tls: { cert, key } });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  equal((await send(t, router.url, HELLO)).status, 503);
  equal(engine.requests.length, 0);
});
