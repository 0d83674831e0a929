import { equal } from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { turnout } from './turnout.ts';

const PORTS = ['--port', '0', '--prometheus-port', '0'];

test('turnout picker starts without a certificate: it makes one of its own', async (t) => {
  const run = turnout(t, ['picker', ...PORTS, '--picker-port', '0', '--picker-health-port', '0']);
  const [, port] = await run.says(/endpoint picker listening on 127\.0\.0\.1:(\d+)/);
  const socket = connect({ port: Number(port), host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['h2'] });
  await once(socket, 'secureConnect');
  equal(socket.getPeerCertificate().subject.CN, 'turnout');
  socket.destroy();
});

test('a port of the picker that another process has is named', async (t) => {
  const other = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  t.after(() => other.close());
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  for (const [flag, free] of [
    ['--picker-port', '--picker-health-port'],
    ['--picker-health-port', '--picker-port'],
  ] as const) {
    const run = turnout(t, ['picker', ...PORTS, flag, String(port), free, '0']);
    equal(await run.ended, 2);
    equal(run.output(), `turnout: ${flag} ${port}: another process listens there already. Choose another port.\n`);
  }
});
