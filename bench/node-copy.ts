/**
 * The lower bound for a router on `node:net`: it copies bytes between a client and one engine and reads none of them.
 * No HTTP proxy on Node costs less unless it reads streams less often. node bench/node-copy.ts PORT ENGINE_PORT…
 */
import { connect, createServer } from 'node:net';

const [port, ...enginePorts] = process.argv.slice(2).map(Number);
const shared = Buffer.allocUnsafeSlow(65_536);
let turn = 0;

const server = createServer({ noDelay: true }, (client) => {
  const engine = connect({
    host: '127.0.0.1',
    port: enginePorts[turn++ % enginePorts.length]!,
    noDelay: true,
    onread: {
      buffer: shared,
      callback: (count) => client.write(shared.toString('latin1', 0, count), 'latin1') || true,
    },
  });
  client.on('data', (bytes) => engine.write(bytes));
  for (const [socket, other] of [
    [client, engine],
    [engine, client],
  ] as const) {
    socket.on('error', () => {});
    socket.on('close', () => other.destroy());
  }
});
server.listen(port, '127.0.0.1');
