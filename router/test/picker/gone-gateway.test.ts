import { equal } from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { startPicker } from '../../src/picker/server.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { askingAt, destinationOf } from './gateway.ts';

/** A way to an address that may be lost: what is sent after that arrives nowhere, and no side learns of it. */
async function wayTo(t: TestContext, address: string): Promise<{ address: string; lose(): void }> {
  const sockets: Socket[] = [];
  const [host, port] = address.split(':') as [string, string];
  const relay = createServer((gateway) => {
    const picker = connect(Number(port), host);
    sockets.push(gateway, picker);
    gateway.pipe(picker).pipe(gateway);
    for (const socket of [gateway, picker]) socket.on('error', () => {});
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  t.after(() => {
    relay.close();
    for (const socket of sockets) socket.destroy();
  });
  return {
    address: `127.0.0.1:${(relay.address() as AddressInfo).port}`,
    lose: () => sockets.forEach((socket) => socket.unpipe().resume()),
  };
}

test('a gateway whose machine is gone: its requests are not in flight for ever', async (t) => {
  const router = await startTestRouter(t, { workerUrls: ['http://127.0.0.1:8080'] });
  const picker = await startPicker({
    pipeline: router.pipeline,
    options: { maxPayloadBytes: 1_000, fallbacks: 0 },
    isControl: () => false,
    othersFor: () => [],
    workerAt: () => null,
    bodyMissed: () => null,
    wantsUsage: () => false,
    served: () => {},
    config: { ...router.config, pickerPort: 0, pickerHealthPort: 0, pickerTls: 'off' },
    log: pino({ level: 'silent' }),
    isDraining: () => false,
    discovery: null,
    // Long enough for a gateway that is there but slow, on a busy machine.
    pings: { everyMs: 500, timeoutMs: 1_500 },
  });
  t.after(() => picker.close());
  const way = await wayTo(t, picker.address);
  const processed = askingAt(t, way.address)({});
  equal(destinationOf(await processed.next()), '127.0.0.1:8080');
  equal(router.pipeline.inFlight.size, 1);
  way.lose();
  await untilIdle(router);
});
