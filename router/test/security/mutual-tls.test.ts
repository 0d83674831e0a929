import { equal, rejects } from 'node:assert/strict';
import { test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { makeCertificate } from '../harness/certificate.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { HELLO, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const LIVENESS = request('GET', '/liveness');

test('--tls-client-ca-path: only clients with a certificate of that authority are heard', async (t) => {
  const server = makeCertificate(t, 'server');
  const client = makeCertificate(t, 'client');
  const stranger = makeCertificate(t, 'stranger');
  if (server === null || client === null || stranger === null) return;
  const engine = await startEngine(t);
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert: ca } = server;
  const options = { workerUrls: [engine.url], tlsCertPath, tlsKeyPath, tlsClientCaPath: client.certPath };
  const router = await startTestRouter(t, options);
  const isHeard = async (own: { cert: string; key: string } | null): Promise<boolean> => {
    const shown = own === null ? {} : { cert: own.cert, key: own.key };
    // In TLS 1.3 a client is done before its certificate is judged: the verdict comes as the end of the connection.
    const connection = await connectClient(t, router.url, { ca, ...shown });
    connection.write(LIVENESS);
    return (await connection.answerOrNone())?.status === 200;
  };
  equal(await isHeard(client), true);
  equal(await isHeard(null), false);
  equal(await isHeard(stranger), false);

  // A large answer, a client that leaves: all as without.
  const connection = await connectClient(t, router.url, { ca, cert: client.cert, key: client.key });
  connection.write(request('POST', '/generate', 'q'.repeat(300_000)));
  const asked = await engine.next();
  asked.connection.write(answer(200, 'a'.repeat(2_000_000)));
  equal((await connection.answer()).payload.length, 2_000_000);
  connection.write(HELLO);
  const left = await engine.next();
  connection.socket.destroy();
  await left.connection.untilEnded();
  await untilIdle(router);

  // After a reload another authority counts.
  client.renew('new client');
  router.reload();
  equal(await isHeard(client), true);
});

test('junk, resets and half a handshake affect no other client', async (t) => {
  const server = makeCertificate(t, 'server');
  if (server === null) return;
  const { certPath: tlsCertPath, keyPath: tlsKeyPath, cert, key } = server;
  const router = await startTestRouter(t, { tlsCertPath, tlsKeyPath, tlsClientCaPath: tlsCertPath });
  const plainUrl = router.url.replace('https', 'http');
  const junk = await connectClient(t, plainUrl);
  junk.write(HELLO);
  await junk.untilEnded();
  for (const bytes of ['', '\x16\x03\x01\x02\x00\x01']) {
    const broken = await connectClient(t, plainUrl);
    broken.write(bytes);
    broken.reset();
    await broken.untilClosed();
  }
  const good = await connectClient(t, router.url, { ca: cert, cert, key });
  good.write(LIVENESS);
  equal((await good.answer()).status, 200);
});

test('a handshake that never ends is ended', async (t) => {
  const server = makeCertificate(t, 'server');
  if (server === null) return;
  const { certPath: tlsCertPath, keyPath: tlsKeyPath } = server;
  const router = await startTestRouter(t, {
    tlsCertPath,
    tlsKeyPath,
    tlsClientCaPath: tlsCertPath,
    clientHeadTimeoutSecs: 0.2,
  });
  const silent = await connectClient(t, router.url.replace('https', 'http'));
  await silent.untilEnded();
});

test('--client-cert-path: https workers see the router\u2019s certificate, in requests and in health checks', async (t) => {
  const worker = makeCertificate(t, 'worker');
  const own = makeCertificate(t, 'router');
  if (worker === null || own === null) return;
  const names: unknown[] = [];
  const engine = await startEngine(t, {
    tls: { cert: worker.cert, key: worker.key, ca: own.cert, requestCert: true, rejectUnauthorized: true },
    onConnection: ({ socket }) => names.push((socket as TLSSocket).getPeerCertificate().subject.CN),
    onRequest: (asked) => asked.answer('{}'),
  });
  const workerOptions = { workerUrls: [engine.url], caCertPath: worker.certPath };
  const without = await startTestRouter(t, workerOptions);
  equal((await send(t, without.url, HELLO)).status === 200, false);

  const router = await startTestRouter(t, {
    ...workerOptions,
    clientCertPath: own.certPath,
    clientKeyPath: own.keyPath,
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.1,
  });
  await until('the worker is healthy', () => router.fleet.workers[0]!.isHealthy);
  equal((await send(t, router.url, HELLO)).status, 200);
  equal(
    names.every((name) => name === 'router'),
    true,
  );
});

test('files that make no certificate are refused at the start, by the name of their option', async (t) => {
  await rejects(
    startTestRouter(t, { clientCertPath: '/nowhere/cert.pem', clientKeyPath: '/nowhere/key.pem' }),
    /--client-cert-path \/nowhere\/cert.pem: not readable \(ENOENT\)/,
  );
});
