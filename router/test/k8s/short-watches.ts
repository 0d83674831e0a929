import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import type { Cluster } from './cluster.ts';

/** What stands before an API server: asks it to end watches after a second, and can hold new ones back. */
export interface ShortWatches {
  readonly url: string;
  /** Watches that wait are let through when it resolves. */
  hold: Promise<void>;
  /** Watches that came. */
  readonly watches: number;
  /** Answers to watches that began with an ERROR event of 410. */
  readonly gone: number;
}

export async function startShortWatches(t: TestContext, cluster: Cluster): Promise<ShortWatches> {
  const state = { url: '', hold: Promise.resolve(), watches: 0, gone: 0 };
  const server: Server = createServer((asked, answer) => {
    void (async () => {
      const isWatch = asked.url!.includes('watch=1');
      if (isWatch) {
        state.watches++;
        await state.hold;
      }
      const path = asked.url!.replace(/timeoutSeconds=\d+/, 'timeoutSeconds=1');
      // The router sends no credentials to a server without TLS.
      const { authorization } = cluster;
      const onward = request(`${cluster.url}${path}`, { ca: cluster.ca, agent: false, headers: { authorization } });
      onward.on('response', (message) => {
        answer.writeHead(message.statusCode!, message.headers);
        answer.flushHeaders();
        message.on('data', (part: Buffer) => {
          const text = part.toString('utf8');
          if (isWatch && text.includes('"ERROR"') && text.includes('410')) state.gone++;
        });
        message.pipe(answer);
      });
      onward.on('error', () => answer.destroy());
      answer.on('close', () => onward.destroy());
      onward.end();
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return state;
}
