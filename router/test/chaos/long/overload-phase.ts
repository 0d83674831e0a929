import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom } from '../../../src/kit/rng.ts';
import { startIdle, startRouterChild } from './child.ts';
import type { Plan } from './client.ts';
import { addWorker } from './control.ts';
import { ChaosEngine, type EngineWorld } from './engine.ts';
import type { Outcome } from './faults-phase.ts';
import { mb, percentile } from './figures.ts';
import { Journal } from './journal.ts';
import { Clients, openLoop } from './load.ts';
import { Watch } from './watch.ts';

const SLOTS = 64;
const QUEUE = 32;
const SERVICE_MS = 200;
const CAPACITY = SLOTS / (SERVICE_MS / 1000);
const ENGINES = 4;
const BASE_SECONDS = 15;
/** After the overload: so long it may take to be well again, so long it must be well then. */
const RECOVERY_MS = 2_000;
const AFTER_SECONDS = 12;
/** A client that has no answer by then has lost its request: nobody may wait so long here. */
const PATIENCE_MS = 20_000;

/** What became of one request. */
export interface Arrival {
  readonly atMs: number;
  readonly ms: number;
  readonly status: number;
}

export interface OverloadSeen {
  readonly base: readonly Arrival[];
  readonly overload: readonly Arrival[];
  /** At the rate of `base` again; `atMs` counts from the end of the overload. */
  readonly after: readonly Arrival[];
  readonly usedBytes: { readonly before: number; readonly most: number };
}

const MAX_GROWTH_BYTES = 64e6;
/** Arrivals come in bunches: at 0.8 of what fits, now and then one more comes than fits. */
const MAX_LATE_REFUSALS = 0.01;

const served = (arrivals: readonly Arrival[]): number[] =>
  arrivals.filter(({ status }) => status === 200).map(({ ms }) => ms);

export function judgeOverload({ base, overload, after, usedBytes }: OverloadSeen): Outcome {
  const complaints: string[] = [];
  const basis = percentile(served(base), 0.95);
  const accepted = percentile(served(overload), 0.95);
  const refusals = overload.filter(({ status }) => status === 429).map(({ ms }) => ms);
  const refusal = percentile(refusals, 0.99);
  const late = after.filter(({ atMs }) => atMs >= RECOVERY_MS);
  const again = percentile(served(late), 0.95);
  const refusedLate = late.filter(({ status }) => status !== 200).length;
  const others = [...base, ...overload, ...after].filter(({ status }) => status !== 200 && status !== 429);
  if (!(accepted <= 2 * basis))
    complaints.push(
      `overload: accepted p95 ${accepted.toFixed(0)} ms, more than twice the ${basis.toFixed(0)} ms at 0.8`,
    );
  if (refusals.length < overload.length * 0.6)
    complaints.push(`overload: only ${refusals.length} of ${overload.length} were refused: this was no overload`);
  if (!(refusal <= 50)) complaints.push(`overload: 429 p99 after ${refusal.toFixed(1)} ms, more than 50`);
  if (usedBytes.most - usedBytes.before > MAX_GROWTH_BYTES)
    complaints.push(`overload: memory grows by ${mb(usedBytes.most - usedBytes.before)} MB`);
  if (refusedLate > late.length * MAX_LATE_REFUSALS)
    complaints.push(`overload: ${refusedLate} refused later than ${RECOVERY_MS} ms after it`);
  if (!(again <= 1.25 * basis))
    complaints.push(`overload: p95 ${again.toFixed(0)} ms after it, ${basis.toFixed(0)} ms before`);
  if (others.length > 0)
    complaints.push(`overload: ${others.length} ended otherwise, the first with status ${others[0]!.status}`);
  const figures = [
    `0.8 × capacity: ${base.length} requests, p95 ${basis.toFixed(0)} ms, ${base.filter(({ status }) => status === 429).length} × 429`,
    `5 × capacity: ${overload.length} requests, ${served(overload).length} served with p95 ${accepted.toFixed(0)} ms, ` +
      `${refusals.length} × 429 with p99 ${refusal.toFixed(1)} ms after the last byte of the request`,
    `heapUsed + external after gc, MB: ${mb(usedBytes.before)} before, at most ${mb(usedBytes.most)}`,
    `from ${RECOVERY_MS / 1000} s after it: p95 ${again.toFixed(0)} ms, ${refusedLate} not served`,
  ];
  return { figures, complaints };
}

export interface OverloadPhase {
  readonly seed: number;
  readonly seconds: number;
  readonly say: (line: string) => void;
}

/** Five times what the router may have under way, for minutes: what it takes it serves in time, the rest it refuses at once. */
export async function runOverload({ seed, seconds, say }: OverloadPhase): Promise<Outcome> {
  const random = seededRandom(seed);
  const journal = new Journal({ maxExecutions: 1, retryStatuses: [], timeoutMs: PATIENCE_MS });
  const world: EngineWorld = { journal, random, faultScale: 0, serviceMs: () => SERVICE_MS, events: () => 1 };
  const options = { policy: 'least_inflight', maxConcurrentRequests: SLOTS, queueSize: QUEUE, logLevel: 'error' };
  const router = await startRouterChild(options, null);
  const idle = await startIdle();
  const clients = new Clients(router.port, journal, PATIENCE_MS);
  const engines: ChaosEngine[] = [];
  const sweeper = setInterval(() => journal.sweep(performance.now(), false), 100);
  const plan: Plan = {
    path: '/v1/completions',
    session: 's0',
    size: 500,
    stream: false,
    isChunked: false,
    leavesAfterMs: 0,
    pausesMs: 0,
    parts: 1,
    lastTurn: false,
  };
  const offer = async (name: string, perSecond: number, forSeconds: number): Promise<Arrival[]> => {
    const arrivals: Arrival[] = [];
    const startMs = performance.now();
    const endMs = startMs + forSeconds * 1000;
    const progress = setInterval(() => {
      const secs = Math.round((performance.now() - startMs) / 1000);
      say(`overload, ${name} ${secs} s: ${arrivals.length} answered, ${clients.inFlight} under way`);
    }, 10_000);
    const one = async (): Promise<void> => {
      const atMs = performance.now() - startMs;
      const { end, ms } = await clients.time(plan);
      arrivals.push({ atMs, ms, status: end.kind === 'whole' ? end.status : 0 });
    };
    const { skipped } = await openLoop(random, {
      perSecond,
      maxInFlight: 4000,
      isOver: () => performance.now() >= endMs || router.death !== null,
      inFlight: () => clients.inFlight,
      ask: () => void one(),
    });
    clearInterval(progress);
    if (skipped > 0) journal.complain(`the run itself: ${skipped} requests could not be sent`);
    return arrivals;
  };
  let outcome: Outcome = { figures: [], complaints: [] };
  try {
    while (engines.length < ENGINES) {
      const engine = new ChaosEngine(18_000 + Math.floor(random() * 2000), world);
      if (!(await engine.start())) continue;
      engines.push(engine);
      await addWorker(router.port, engine.url);
    }
    await delay(1500);
    await offer('warm-up', CAPACITY * 0.8, 5);
    const before = (await router.ask('report after gc')).usedBytes;
    const base = await offer('0.8', CAPACITY * 0.8, BASE_SECONDS);
    const watch = new Watch(router, idle, 5000);
    await watch.start();
    const overload = await offer('5', CAPACITY * 5, seconds);
    const after = await offer('0.8 again', CAPACITY * 0.8, AFTER_SECONDS);
    const seen = await watch.stop({ usedMbPerMinute: Infinity, rssMbPerMinute: Infinity, loopP99Ms: Infinity });
    while (clients.inFlight > 0) await delay(50);
    const most = Math.max(...watch.used.map(({ value }) => value));
    outcome = judgeOverload({ base, overload, after, usedBytes: { before, most } });
    outcome = { ...outcome, figures: [...outcome.figures, ...seen.figures] };
    while (journal.openCount > 0) await delay(50);
  } catch (error) {
    journal.complain(`the run itself: ${(error as Error).stack ?? String(error)}`);
  } finally {
    if (router.death !== null) journal.complain(`the router process ${router.death}`);
    clearInterval(sweeper);
    clients.close();
    for (const engine of engines) engine.kill();
    await Promise.all([router.stop(), idle.stop()]);
  }
  return { figures: outcome.figures, complaints: [...outcome.complaints, ...journal.complaints] };
}
