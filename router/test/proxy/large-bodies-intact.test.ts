import { deepEqual, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { type Random, seededRandom } from '../../src/kit/rng.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';

const MB = 2 ** 20;
const REQUESTS = 48;
const CLIENTS = 8;

/** No two have the same bytes at the same place. */
function makeBody(id: number, bytes: number): Buffer {
  const words = new Uint32Array(bytes >> 2);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i * REQUESTS + id, 2_654_435_761);
  return Buffer.from(words.buffer);
}

interface World {
  readonly random: Random;
  readonly bodies: Map<string, Buffer>;
  /** What an engine got and nobody sent. */
  readonly wrong: string[];
  readonly attempts: { count: number };
}

/** Compares what comes with what was sent, byte by byte, and is now and then slow, unwilling or dead in the middle of it. */
async function serve({ bodies, random, wrong, attempts }: World, asked: IncomingMessage, answer: ServerResponse) {
  attempts.count++;
  const id = asked.headers['x-id'] as string;
  const body = bodies.get(id)!;
  const [mood, place] = [random(), random() * body.length];
  let at = 0;
  let isCut = false;
  try {
    for await (const part of asked as AsyncIterable<Buffer>) {
      if (part.compare(body, at, at + part.length) !== 0) wrong.push(`${id} at ${at}`);
      at += part.length;
      if (at < place || answer.headersSent) continue;
      if (mood < 0.15) {
        asked.socket.destroy();
        return;
      }
      if (mood < 0.4) answer.writeHead(503, { 'content-length': 2 }).end('no');
      else if (mood < 0.6) for (let i = 0; i < 20; i++) await turn();
    }
  } catch {
    isCut = true; // The router, or its client, has gone.
  }
  if (isCut) return;
  if (at !== body.length) wrong.push(`${id} ends at ${at} of ${body.length}`);
  if (!answer.headersSent) answer.end(id);
}

/** @returns what came of it: a status, or that this client left. */
async function send(url: string, { random, bodies }: World, id: string): Promise<number | 'left'> {
  const body = bodies.get(id)!;
  const [isChunked, leavesAt] = [random() < 0.4, random() < 0.15 ? random() * body.length : Infinity];
  const length = isChunked ? {} : { 'content-length': body.length };
  const asked = request(`${url}/generate`, { method: 'POST', headers: { 'x-id': id, ...length } });
  const done = Promise.withResolvers<number | 'left'>();
  asked.on('response', (answer) => answer.resume().on('close', () => done.resolve(answer.statusCode!)));
  // It may be answered, and cut, before all of it is sent.
  asked.on('error', () => done.resolve('left'));
  for (let at = 0; at < body.length && !asked.destroyed;) {
    const part = body.subarray(at, at + 1 + Math.floor(random() * 200_000));
    at += part.length;
    if (at > leavesAt) asked.destroy();
    else if (!asked.write(part)) await Promise.race([once(asked, 'drain'), done.promise]).catch(() => {});
  }
  asked.end();
  return done.promise;
}

async function scene(t: TestContext, retryBufferBytes: number, seed: number): Promise<void> {
  const random = seededRandom(seed);
  const sizes = Array.from({ length: REQUESTS }, () => 4 * Math.floor(random() * MB));
  const bodies = new Map(sizes.map((bytes, id) => [String(id), makeBody(id, bytes + 4)]));
  const world: World = { random, bodies, wrong: [], attempts: { count: 0 } };
  const workerUrls: string[] = [];
  for (let i = 0; i < 3; i++) {
    const server = createServer((asked, answer) => void serve(world, asked, answer));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    workerUrls.push(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  }
  const many = { retryMaxRetries: 10, retryBudget: 1, retryInitialBackoffMs: 1, disableCircuitBreaker: true };
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin', retryBufferBytes, ...many });
  const waiting = [...bodies.keys()];
  const outcomes: (number | 'left')[] = [];
  await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      for (let id = waiting.shift(); id !== undefined; id = waiting.shift())
        outcomes.push(await send(router.url, world, id));
    }),
  );
  await untilIdle(router);
  t.diagnostic(
    `${world.attempts.count} attempts: ${JSON.stringify(Object.groupBy(outcomes, String), (_, v: unknown) => (Array.isArray(v) ? v.length : v))}`,
  );
  deepEqual(world.wrong, []);
  ok(outcomes.filter((outcome) => outcome === 200).length >= REQUESTS / 3, 'most are served');
}

test('large bodies reach engines as they were sent, whatever engines and clients do meanwhile', async (t) => {
  for (const seed of [1, 2]) await scene(t, 2 ** 30, seed);
});

test('the same where there is no room to keep them', async (t) => {
  await scene(t, 5 * MB, 3);
});
