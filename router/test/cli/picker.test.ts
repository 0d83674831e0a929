import { equal } from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { turnout } from './turnout.ts';

test('turnout picker starts without a certificate: it makes one of its own', async (t) => {
  const ports = ['--picker-port', '0', '--picker-health-port', '0', '--port', '0', '--prometheus-port', '0'];
  const run = turnout(t, ['picker', ...ports]);
  const [, port] = await run.says(/endpoint picker listening on 127\.0\.0\.1:(\d+)/);
  const socket = connect({ port: Number(port), host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['h2'] });
  await once(socket, 'secureConnect');
  equal(socket.getPeerCertificate().subject.CN, 'turnout');
  socket.destroy();
});
