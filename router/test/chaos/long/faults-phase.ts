import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom } from '../../../src/kit/rng.ts';
import { startIdle, startRouterChild } from './child.ts';
import { addWorker, metric, removeWorker } from './control.ts';
import { ChaosEngine, type EngineWorld } from './engine.ts';
import { ChaosFleet } from './fleet.ts';
import { Journal } from './journal.ts';
import { untilAtRest } from './leaks.ts';
import { Clients, closedLoop, drawPlan, openLoop } from './load.ts';
import type { Sabotage } from './sabotage.ts';
import { type Limits, Watch } from './watch.ts';

/** What a phase found: figures for people, and everything that must not be. */
export interface Outcome {
  readonly figures: readonly string[];
  readonly complaints: readonly string[];
}

export interface FaultsPhase {
  readonly name: string;
  readonly seed: number;
  readonly seconds: number;
  /** So many clients at once, or so many requests a second whatever becomes of them. */
  readonly load: { readonly clients: number } | { readonly perSecond: number };
  readonly engines: number;
  /** 1: as often as the table of faults says. */
  readonly faultScale: number;
  /** Between two events of the fleet. */
  readonly eventGapMs: number;
  readonly serviceMs: EngineWorld['serviceMs'];
  readonly events: EngineWorld['events'];
  readonly options: Readonly<Record<string, unknown>>;
  readonly patienceMs: number;
  readonly sampleMs: number;
  readonly limits: Limits;
  readonly sabotage: Sabotage | null;
  readonly say: (line: string) => void;
}

/** Complaints that are said at once; all are in the report. */
const MAX_SAID = 20;
const REQUEST_TIMEOUT_SECS = 25;
const MAX_RETRIES = 3;
const RETRY_STATUSES = [408, 429, 500, 502, 503, 504];

/** Everything that a run of minutes needs to be bounded in: nothing here is off, and nothing takes long. */
const routerOptions = {
  logLevel: 'error',
  healthCheckIntervalSecs: 0.5,
  healthCheckTimeoutSecs: 1,
  requestTimeoutSecs: REQUEST_TIMEOUT_SECS,
  firstByteTimeoutSecs: 10,
  streamIdleTimeoutSecs: 10,
  cbTimeoutDurationSecs: 2,
  maxTreeSize: 16_384,
  retryMaxRetries: MAX_RETRIES,
} as const;

/** Faults of every kind at both ends, by chance, and then: is everything accounted for, and nothing left over? */
export async function runFaults(phase: FaultsPhase): Promise<Outcome> {
  const random = seededRandom(phase.seed);
  const journal = new Journal({
    maxExecutions: 1 + MAX_RETRIES,
    retryStatuses: RETRY_STATUSES,
    timeoutMs: REQUEST_TIMEOUT_SECS * 1000 - 500,
  });
  const { faultScale, serviceMs, events } = phase;
  const world: EngineWorld = { journal, random, faultScale, serviceMs, events };
  const router = await startRouterChild({ ...routerOptions, ...phase.options }, phase.sabotage);
  const idle = await startIdle();
  const fleet = new ChaosFleet(world, router.port);
  const clients = new Clients(router.port, journal, phase.patienceMs);
  const sweeper = setInterval(() => journal.sweep(performance.now(), fleet.isStalled), 100);
  const figures: string[] = [];
  let progress: NodeJS.Timeout | undefined;
  try {
    await warmUp(router.port, { ...world, faultScale: 0 }, clients);
    const before = await atRest(router);
    for (let n = 0; n < phase.engines; n++) await fleet.add();
    await delay(1500);

    const watch = new Watch(router, idle, phase.sampleMs);
    await watch.start();
    const startMs = performance.now();
    const endMs = startMs + phase.seconds * 1000;
    const isOver = (): boolean => performance.now() >= endMs || router.death !== null;
    let said = 0;
    progress = setInterval(() => {
      const { counts, complaints } = journal;
      const secs = Math.round((performance.now() - startMs) / 1000);
      const used = watch.used.at(-1)?.value ?? 0;
      phase.say(
        `${phase.name} ${secs} s: ${counts.requests} requests, ${clients.inFlight} under way, ${counts.cut} cut, ` +
          `${counts.again} executed again, ${(used / 1e6).toFixed(1)} MB, ${complaints.length} complaints`,
      );
      for (const complaint of complaints.slice(said, MAX_SAID)) phase.say(`  ! ${complaint}`);
      said = complaints.length;
    }, 10_000);
    const conducting = fleet.conduct(phase.eventGapMs);
    const { load } = phase;
    const loading =
      'clients' in load
        ? closedLoop(clients, random, load.clients, isOver)
        : openLoop(random, {
            perSecond: load.perSecond,
            maxInFlight: 1500,
            isOver,
            inFlight: () => clients.inFlight,
            ask: () => void clients.ask(drawPlan(random), random() < 0.2, random() < 0.9),
          }).then(({ sent, skipped }) => {
            figures.push(
              `sent ${(sent / phase.seconds).toFixed(0)} requests/s of ${load.perSecond}; ` +
                `${skipped} were not sent, as too many were under way`,
            );
          });
    while (!isOver()) await delay(50);
    // Now, and not when the last request is over: as the load fades, so would the traces of a leak.
    const seen = await watch.stop(phase.limits);
    await loading;
    figures.push(...seen.figures);
    for (const complaint of seen.complaints) journal.complain(complaint);
    await fleet.end();
    await conducting;

    // Whatever is under way comes to its end, then nothing may be left.
    const deadline = performance.now() + phase.patienceMs + 30_000;
    while ((clients.inFlight > 0 || journal.openCount > 0) && performance.now() < deadline) await delay(50);
    if (journal.openCount > 0) journal.complain(`lost: ${journal.openCount} requests never came to an end`);
    clients.close();
    const retries = await metric(router.port, /^turnout_retries_total\{[^}]*\} (\d+)$/gm);
    await fleet.removeAll();
    for (const complaint of await untilAtRest(router, before)) journal.complain(complaint);
    const { counts } = journal;
    if (counts.again > retries)
      journal.complain(
        `duplicated: ${counts.again} requests were executed again, the router counts ${retries} retries`,
      );
    // A run that hardly served anything has not tested anything.
    if (counts.whole < counts.requests * 0.5)
      journal.complain(`only ${counts.whole} of ${counts.requests} requests were served`);
    figures.push(
      `${counts.requests} requests: ${counts.whole} whole, ${counts.engineErrors} errors of engines, ${counts.cut} cut, ${counts.left} left; ` +
        `errors of the router: ${[...counts.errors].map(([code, count]) => `${code} ${count}`).join(', ') || 'none'}`,
      `${counts.executions} executions, ${counts.again} of them again; ${retries} retries counted by the router`,
      `fleet: ${Object.entries(fleet.events)
        .map(([what, count]) => `${what} ${count}`)
        .join(', ')}`,
    );
  } catch (error) {
    journal.complain(`the run itself: ${(error as Error).stack ?? String(error)}`);
  } finally {
    if (router.death !== null) journal.complain(`the router process ${router.death}`);
    clearInterval(sweeper);
    clearInterval(progress);
    clients.close();
    fleet.close();
    await Promise.all([router.stop(), idle.stop()]);
  }
  return { figures, complaints: journal.complaints };
}

/** What the first request makes once and for all is no leak. */
async function warmUp(port: number, world: EngineWorld, clients: Clients): Promise<void> {
  const engine = new ChaosEngine(19_999, world);
  while (!(await engine.start())) await delay(100);
  await addWorker(port, engine.url);
  const plan = { ...drawPlan(world.random), size: 1000, leavesAfterMs: 0, pausesMs: 0 };
  for (let n = 0; n < 50; n++) await clients.ask({ ...plan, stream: n % 2 === 0 }, false, true);
  await removeWorker(port, engine.url);
  clients.close();
  while (engine.sockets.size > 0) await delay(50);
  engine.kill();
}

/** The router once nothing moves in it any more. */
async function atRest(
  router: Awaited<ReturnType<typeof startRouterChild>>,
): Promise<Awaited<ReturnType<typeof router.ask>>> {
  let last = await router.ask('report after gc');
  for (let same = 0; same < 4;) {
    await delay(250);
    const now = await router.ask('report after gc');
    same = JSON.stringify(now.resources) === JSON.stringify(last.resources) ? same + 1 : 0;
    last = now;
  }
  return last;
}
