// What counting and tracing cost a request, in CPU time of the calls alone: npm run bench -- observe
import { Exchange } from '../../router/src/exchange.ts';
import type { Worker } from '../../router/src/fleet/worker.ts';
import { Meters, PolicyMeters } from '../../router/src/observe/meters.ts';
import type { Observer } from '../../router/src/observe/observer.ts';
import { Tracing } from '../../router/src/observe/trace/tracing.ts';
import { RequestHead } from '../../router/src/wire/request-head.ts';
import { machine } from '../machine.ts';

const ROUNDS = 30;
const REQUESTS = 10_000;
const WORKERS = 64;

const bytes = Buffer.from(
  'POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: 2048\r\n' +
    'user-agent: python-httpx/0.27\r\naccept: */*\r\nx-session-id: rollout-17\r\nauthorization: Bearer key\r\n\r\n',
);
const workers = Array.from({ length: WORKERS }, (_, i) => {
  const url = `http://10.0.0.${i}:8000`;
  return { url, engineUrl: url, engine: 'vllm' } as unknown as Worker;
});

/** A stream of 20 tokens that is over, but for its outcome. */
function finishedStream(i: number): Exchange {
  const head = new RequestHead();
  head.read(bytes, 0, bytes.length);
  const x = new Exchange({ ended: () => {} }, head, { bytes: 2048 } as never, {} as never, 1_000);
  const worker = workers[i % WORKERS]!;
  const usage = { promptTokens: 500, cachedTokens: 400, outputTokens: 20 };
  const placement = { legs: [{ worker, role: 'regular' }] };
  const times = { sentMs: 1_001, firstByteMs: 1_010, firstTokenMs: 1_012, lastByteMs: 1_048, endMs: 1_050 };
  const path = '/v1/chat/completions';
  return Object.assign(x, times, { path, usage, placement, isGeneration: true, isStream: true, status: 200 } as const);
}

interface Placed extends Observer {
  placed?(x: Exchange): void;
}

/** The least of the rounds: others have the garbage of the rounds before. @returns microseconds a request */
function measure(observers: readonly Placed[], readings = 0): number {
  let least = Infinity;
  let sink = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const requests = Array.from({ length: REQUESTS }, (_, i) => finishedStream(i));
    const before = process.cpuUsage();
    for (const x of requests) {
      for (let i = 0; i < readings; i++) sink += performance.now();
      for (const observer of observers) observer.placed?.(x);
      x.attempts = 1;
      x.outcome = 'complete';
      for (const observer of observers) observer.finished?.(x);
    }
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / REQUESTS);
  }
  if (Number.isNaN(sink)) throw new Error('no time');
  return least;
}

const tracing = (sampleRatio: number): Tracing =>
  new Tracing({
    endpoint: 'http://127.0.0.1:9',
    sampleRatio,
    sessionHeaders: [],
    policyOf: () => 'rollout',
    log: { info: () => {}, warn: () => {} } as never,
  });

const rows: [string, number][] = [
  // When it was sent, when its first token came, when it was complete.
  ['all counters, and the three readings of the clock', measure([new Meters(), new PolicyMeters(() => 'rollout')], 3)],
  ['traces, of no request', measure([tracing(0)])],
  ['traces, of 1 %', measure([tracing(0.01)])],
  ['traces, of all', measure([tracing(1)])],
];
process.stdout.write(`${machine()}\n`);
for (const [what, us] of rows) process.stdout.write(`${what}: ${us.toFixed(2)} us a request\n`);
process.exit();
