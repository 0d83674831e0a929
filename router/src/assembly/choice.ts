import { startChoosing } from '../admin/policy-control.ts';
import { Admission, admissionOptions } from '../admit/admission.ts';
import { fairKeys } from '../admit/fair-queue.ts';
import { HeapGuard } from '../admit/heap-guard.ts';
import { startAccess } from '../admit/start-access.ts';
import { Chooser } from '../choose/choose.ts';
import { explainsOf } from '../choose/explain-choice.ts';
import { FullWorkers, fullWorkersOptions } from '../choose/full-workers.ts';
import { HoldQueue } from '../choose/hold-queue.ts';
import { SessionHomes } from '../choose/session-homes.ts';
import { SlowStart } from '../choose/usable-workers.ts';
import { fileStore } from '../choose/state-files.ts';
import { memoryStore } from '../choose/state.ts';
import { BodyReader, FactReader } from '../classify/body-reader.ts';
import { keyOrders } from '../classify/routing-keys.ts';
import type { Config } from '../config/options.ts';
import type { Exchange } from '../exchange.ts';
import { noAvailableWorkers } from '../fleet/availability.ts';
import { Fleet } from '../fleet/fleet.ts';
import { fleetOptions, healthOptions, poolOptions } from '../fleet/fleet-options.ts';
import { type FleetListener, watchFleet } from '../fleet/watch-fleet.ts';
import { WorkerTls } from '../fleet/worker-tls.ts';
import { VersionLabels } from '../weights/version-labels.ts';
import { startBodyThread } from '../forward/body-calls.ts';
import { HungRequests } from '../forward/hung-requests.ts';
import { fleetLog, logBreaker, logHealth, logStall } from '../observe/fleet-log.ts';
import type { Logger } from '../observe/log.ts';
import { PolicyMeters } from '../observe/meters.ts';
import { logMove } from '../observe/request-logs.ts';
import type { Tracing } from '../observe/trace/tracing.ts';
import type { Base } from './base.ts';

export type Engines = ReturnType<typeof startEngines>;
export type Choice = Awaited<ReturnType<typeof startChoice>>;

/** The fleet, and the keys of clients and engines. */
export function startEngines(parts: Base) {
  const { config, live, closers } = parts;
  const access = startAccess(config);
  const workerTls = new WorkerTls(config);
  const pool = live.of(poolOptions);
  const fleet = new Fleet({ pool, tls: workerTls, key: access.workerKey, ...fleetOptions(config) });
  closers.add(() => fleet.close());
  parts.meters.hasLeft = (url) => fleet.get(url) === undefined;
  const labels = new VersionLabels(fleet, live.of(healthOptions));
  closers.add(() => labels.close());
  return { ...parts, access, workerTls, fleet, labels };
}

/** What decides whether and where a request goes: health, policies, limits. */
export async function startChoice(parts: Engines) {
  const { config, live, log, random, meters, inFlight, closers, fleet, labels } = parts;
  const store =
    config.dataDir === undefined
      ? memoryStore()
      : fileStore(config.dataDir, (error) => log.error({ error: error.message }, '--data-dir: state not written'));
  closers.add(() => store.close());
  const holdQueue = new HoldQueue({
    isClosed: ({ isLimit }) => isLimit !== true && fleet.isAllFull,
    setOf: (x) => chooser.setOf(x),
  });
  // Policies compare times of a few milliseconds; the coarse clock of the listeners is up to 250 ms late.
  const nowMs = performance.now.bind(performance);
  const homes = new SessionHomes(nowMs, () => live.current.sessionTtlSecs * 1000);
  homes.onMoved = (x: Exchange, move) => logMove(log, x, move);
  const state = store.open.bind(store);
  const { table, ...choosing } = await startChoosing(live, { fleet, random, nowMs, state, holdQueue, homes, log });
  closers.add(() => table.close());

  const slowStart = new SlowStart(fleet, nowMs);
  const hungRequests = new HungRequests(fleet, () => inFlight);
  const listener: FleetListener = {
    onBreaker(event, worker) {
      if (event === 'closed') slowStart.begin(worker);
      if (event !== 'panic') meters.worker(worker).breakerChanged(event === 'opened' ? 'open' : event);
      logBreaker(log, event, worker);
    },
    onHealth(event, worker, detail, failedChecks = 0) {
      if (event === 'readmitted') slowStart.begin(worker);
      // A new process has none of the prompts of the old one.
      if (event === 'restarted') table.flushed(worker, 'engine');
      logHealth(log, event, worker, detail, { failedChecks, waiting: () => hungRequests.waitingAt(worker) });
      if (event === 'hung') hungRequests.add(worker, detail);
    },
    onStalled: (worker) => logStall(log, worker),
    onModels: () => holdQueue.retryHeld(),
  };
  const watch = watchFleet(fleet, live, random, labels, listener);
  closers.add(() => watch.close());
  const { breakers, models } = watch;
  fleet.onEvent(() => holdQueue.retryHeld());
  fleet.onEvent((event, { url }) => {
    if (event === 'removed') meters.byWorker.get(url)?.workerLeft();
  });
  fleet.onEvent(fleetLog(log, fleet, breakers));

  const keys = live.of(({ keyOrder, sessionHeaders, sessionFields }) => {
    const keyPlaces = keyOrders[keyOrder](sessionHeaders, sessionFields);
    return { places: keyPlaces, fair: fairKeys(keyPlaces) };
  });
  const bodyThread = startBodyThread();
  closers.add(() => bodyThread.close());
  const reader = new BodyReader(keys.places, (body, question) => bodyThread.run('scan', body, question));
  const full = new FullWorkers(fleet, holdQueue, live.of(fullWorkersOptions), models);
  const explains = explainsOf(config, log.isLevelEnabled('debug'));
  const policyFor = table.nameFor.bind(table);
  const policyMeters = new PolicyMeters(policyFor);
  const tracing = await startTracing(config, log, policyFor);
  closers.add(() => tracing?.close());
  const countPlaced = policyMeters.placed.bind(policyMeters);
  const onPlaced = tracing === null ? countPlaced : (x: Exchange) => (countPlaced(x), tracing.placed(x));
  const facts = new FactReader(table, reader, models, watch.health);
  const chooser = new Chooser(fleet, table, { queue: holdQueue, full, slowStart, models, explains, homes, onPlaced });

  const heap = new HeapGuard();
  const noAvailable = () => noAvailableWorkers(fleet, breakers);
  const admission = new Admission({
    options: live.of(admissionOptions),
    fleet,
    models,
    held: holdQueue,
    heap,
    keyOf: (x) => keys.fair(x),
    noAvailableWorkers: noAvailable,
    onWaited: (seconds) => meters.queueWait.observe(seconds),
  });
  holdQueue.onHeld = () => admission.lookSoon();
  const deciding = {
    store,
    homes,
    table,
    policyFor,
    choosing,
    holdQueue,
    hungRequests,
    keys,
    bodyThread,
    reader,
    full,
  };
  return { ...parts, ...deciding, watch, facts, chooser, policyMeters, tracing, heap, noAvailable, admission };
}

/** @returns null: no traces are sent */
async function startTracing(
  { otlpTracesEndpoint: endpoint, traceSampleRatio: sampleRatio, sessionHeaders }: Config,
  log: Logger,
  policyOf: (x: Exchange) => string,
): Promise<Tracing | null> {
  if (endpoint === undefined) return null;
  const { Tracing } = await import('../observe/trace/tracing.ts');
  return new Tracing({ endpoint, sampleRatio, sessionHeaders, policyOf, log });
}
