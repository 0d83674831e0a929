import { createSecureContext } from 'node:tls';
import { createAdminApp, ownPathTest } from './admin/app.ts';
import { Doors } from './admin/doors.ts';
import { drain } from './admin/drain.ts';
import { modelList } from './admin/model-list.ts';
import { startChoosing } from './admin/policy-control.ts';
import { reception } from './admin/reception.ts';
import { ownEndpoints } from './admin/own-endpoints.ts';
import { Admission } from './admit/admission.ts';
import { fairKeys } from './admit/fair-key.ts';
import { HeapGuard } from './admit/heap-guard.ts';
import { admissionOptions } from './admit/options.ts';
import { PluginGate } from './admit/plugin-gate.ts';
import { startAccess } from './admit/start-access.ts';
import { Chooser } from './choose/choose.ts';
import { FullWorkers } from './choose/full-workers.ts';
import { SlowStart } from './choose/slow-start.ts';
import { fileStore } from './choose/state-files.ts';
import { memoryStore } from './choose/state.ts';
import { WaitingRoom } from './choose/waiting-room.ts';
import { BodyReader } from './classify/body-reader.ts';
import { classify } from './classify/classify.ts';
import { orders } from './classify/keys.ts';
import { retargeted } from './classify/retarget.ts';
import { settlerOf } from './classify/roles.ts';
import { workerCertificates } from './config/certificates.ts';
import { namedWorkers } from './config/named-workers.ts';
import { LiveConfig } from './config/live.ts';
import { pairKind } from './config/pairs.ts';
import { withoutEffect } from './config/without-effect.ts';
import type { Config } from './config/options.ts';
import { Fleet } from './fleet/fleet.ts';
import { nobodyAvailable } from './fleet/availability.ts';
import { Breakers } from './fleet/breakers.ts';
import { type Discovery, startDiscovery } from './fleet/discover/kubernetes.ts';
import { addNamed, changeWorkers } from './fleet/change-workers.ts';
import { Health } from './fleet/health.ts';
import { FleetModels } from './fleet/models.ts';
import { LoadWatch } from './fleet/load-watch.ts';
import { StallWatch } from './fleet/stalls.ts';
import { breakersOptions, healthOptions } from './fleet/options.ts';
import { WorkerPlaces } from './fleet/worker-places.ts';
import { FleetControl } from './forward/control/fleet-control.ts';
import { Forwarder } from './forward/forward.ts';
import { forwardOptions } from './forward/options.ts';
import { BodyThread } from './forward/body-thread.ts';
import { pairStyleOf } from './forward/pd/pair-style.ts';
import { addRankField } from './forward/rank-field.ts';
import type { CoarseClock } from './kit/clock.ts';
import { seededRandom } from './kit/rng.ts';
import { controlLog, exchangeLog } from './observe/exchange-log.ts';
import { logHealth } from './observe/health-log.ts';
import { type Logger, givenLog, openLog } from './observe/log.ts';
import { logFiles } from './observe/log-targets.ts';
import { LoopLag } from './observe/loop-lag.ts';
import { Meters } from './observe/meters.ts';
import { createRegistry, metricsPage } from './observe/metrics.ts';
import { pluginEnds } from './observe/plugin-ends.ts';
import { verdicts } from './observe/verdicts.ts';
import { Pipeline } from './pipeline.ts';
import type { Plugin } from './plugin.ts';
import { startPlugins } from './plugins/start.ts';
import { startTrajectories } from './trajectory/trajectories.ts';
import { TICK_MS } from './wire/listener.ts';
import { RetryBudget } from './wire/request-body.ts';

export interface RouterParts {
  readonly plugins?: readonly Plugin[];
  readonly log?: Logger;
}

/** A running router. */
export interface Router {
  /** Where it listens, for example `http://127.0.0.1:30000`. */
  readonly url: string;
  readonly metricsUrl: string;
  /** Where it takes what steers it, with `--admin-port`. */
  readonly adminUrl: string | null;
  /** What is in force now. */
  readonly config: Config;
  readonly fleet: Fleet;
  readonly pipeline: Pipeline;
  /** Puts what `read` answers in force, and reads files of certificates and keys again; open connections go on. Never rejects. */
  reload(read?: () => Config): Promise<void>;
  /** Stops taking requests, lets those under way finish for at most `graceMs`, then cuts them. */
  close(graceMs?: number): Promise<void>;
}

/** Puts the rooms together and opens the doors. Rejects when an address can't be listened on. */
export async function startRouter(config: Config, parts: RouterParts = {}): Promise<Router> {
  const live = new LiveConfig(config);
  const logging = parts.log === undefined ? openLog(config.logLevel, logFiles(config)) : givenLog(parts.log);
  const log = logging.logger;
  for (const line of withoutEffect(config)) log.warn(line);
  const random = seededRandom(Math.floor(Math.random() * 2 ** 32));
  const clock: CoarseClock = { nowMs: performance.now() };
  const retryBudget = new RetryBudget(config.retryBufferBytes);
  const meters = new Meters();
  const loopLag = new LoopLag();

  const access = startAccess(config, {
    isOwn: (path) => isOwn(path),
    isOfPluginForClients: (path) => pluginRoom.endpoints.areForClients(path),
  });
  const workerTls = { secureContext: createSecureContext(workerCertificates(config)) };
  const kind = pairKind(config);
  const fleet = new Fleet({
    pool: live.of(({ connectTimeoutMs, workerIdleTimeoutMs: idleTimeoutMs }) => ({ connectTimeoutMs, idleTimeoutMs })),
    tls: workerTls,
    key: access.workerKey,
    places: new WorkerPlaces(config.workerAllow),
    workerMaxInflight: config.workerMaxInflight,
    ranksEach: config.intraNodeDataParallelSize,
    asksForRanks: config.dpAware,
    servesPairs: kind !== null,
    pairsRanks: kind === 'nixl' || kind === 'mooncake',
  });
  const trajectories = await startTrajectories(config, log);
  const given = [...(parts.plugins ?? []), ...(trajectories?.plugins ?? [])];
  const pluginRoom = await startPlugins(given, { live, fleet, meters, log, trajectories });
  const slowStart = new SlowStart(fleet, () => clock.nowMs);
  const breakers = new Breakers(
    fleet,
    live.of(breakersOptions),
    () => performance.now(),
    (event, worker) => {
      if (event === 'closed') slowStart.begin(worker);
      log[event === 'closed' ? 'info' : 'warn']({ worker: worker.url }, `circuit breaker: ${event.replace('_', ' ')}`);
    },
  );
  const health = new Health(fleet, live.of(healthOptions), random, breakers, (event, worker, detail, failedChecks) => {
    if (event === 'readmitted') slowStart.begin(worker);
    // A new process has none of the prompts of the old one.
    if (event === 'restarted') choosing.table.flushed(worker);
    if (event === 'restarted' || event === 'identified') void models.read([worker]);
    logHealth(log, event, worker, detail, failedChecks);
  });
  const models = new FleetModels(fleet, live.of(healthOptions), () => waitingRoom.knock());
  const stalls = new StallWatch(fleet, (worker) => {
    log.warn({ worker: worker.url, streams: worker.openStreams }, 'worker has streams open and says nothing');
    health.suspect(worker);
  });
  const watchLoad = ({ engineLoadIntervalSecs: secs, healthCheckTimeoutSecs }: Config): LoadWatch | null =>
    secs > 0 ? new LoadWatch(fleet, secs * 1000, healthCheckTimeoutSecs * 1000) : null;
  let loadWatch = watchLoad(config);
  const waitingRoom = new WaitingRoom((holder) => holder !== fullWorkers && fleet.isAllFull);
  const fullWorkers = new FullWorkers(
    fleet,
    waitingRoom,
    live.of(({ queueSize, queueTimeoutSecs }) => ({ queueSize, queueTimeoutMs: queueTimeoutSecs * 1000 })),
    models,
  );
  const store =
    config.dataDir === undefined
      ? memoryStore()
      : fileStore(config.dataDir, (error) => log.error({ error: error.message }, '--data-dir: state not written'));
  const choosing = await startChoosing(live, {
    fleet,
    random,
    nowMs: () => clock.nowMs,
    state: (name) => store.open(name),
    knock: () => waitingRoom.knock(),
    log,
  }).catch(async (error: unknown) => {
    await pluginRoom.close();
    throw error;
  });
  const keyPlaces = ({ keyOrder, sessionHeaders }: Config) => orders[keyOrder](sessionHeaders);
  const reader = new BodyReader(keyPlaces(config));
  const explains = log.isLevelEnabled('debug');
  const chooser = new Chooser(fleet, choosing.table, reader, { full: fullWorkers, slowStart, models, explains });
  const heapGuard = new HeapGuard();
  const nobody = () => nobodyAvailable(fleet, breakers);
  const fairKey = live.of((options) => ({ of: fairKeys(keyPlaces(options)) }));
  const admission = new Admission({
    options: live.of(admissionOptions),
    fleet,
    models,
    heap: heapGuard,
    keyOf: (head) => fairKey.of(head),
    nobodyAvailable: nobody,
    onWaited: (seconds) => meters.queueWait.observe(seconds),
  });
  fleet.onEvent((event, worker) => {
    waitingRoom.knock();
    if (event !== 'changed') log.info({ worker: worker.url }, `worker ${event}`);
  });

  const registry = createRegistry({
    meters,
    fleet,
    openConnections: () => doors.data.connections.size,
    inFlight: () => pipeline.underWay.size,
    held: () => waitingRoom.counts(),
    admission: () => admission,
    shedByFullWorkers: () => fullWorkers.shed,
    refusedConnections: () => doors.data.limits.refused,
    retryBufferBytes: () => retryBudget.usedBytes,
    breakers,
    stalls,
    loopLag: loopLag.histogram,
    droppedLogLines: () => logging.droppedLines(),
    discovery: () => discovery,
    trajectories: () => trajectories?.state ?? null,
  });
  const metricsText = async () => ({
    contentType: registry.contentType,
    text: (await metricsPage(registry)) + (await pluginRoom.metricsText()),
  });
  const policies = {
    ...choosing.control,
    async set(model: string, policy: string) {
      await choosing.control.set(model, policy);
      log.info({ policy, model }, 'policy changed');
      waitingRoom.askAll();
    },
  };
  const app = createAdminApp({
    fleet,
    breakers,
    workerApi: config.workerApi,
    startupTimeoutMs: () => live.current.workerStartupTimeoutSecs * 1000,
    metricsText,
    isDraining: () => doors.data.isDraining,
    policies,
    trajectories,
  });

  const isOwn = ownPathTest(app);
  const { doorkeeper, cors } = access;

  const { table } = choosing;
  const fleetControl = new FleetControl({ fleet, table, health, models, clock, config, onResult: controlLog(log) });
  const ids = live.of(({ requestIdHeaders }) => ({ requestIdHeaders }));
  // The guard reads what the other plugins made of a body.
  const plugins = [...pluginRoom.plugins, ...(doorkeeper === null ? [] : [doorkeeper.bodyGuard])];
  const bodyThread = new BodyThread();
  addRankField(fleet, plugins, bodyThread);
  const settleRoles = settlerOf(kind);
  const pairOptions = live.of(({ pdMinPromptTokens }) => ({ minPromptTokens: pdMinPromptTokens }));
  const pipeline = new Pipeline({
    classify: retargeted(plugins, (x) => classify(x, ids.requestIdHeaders) ?? settleRoles(x)),
    doorkeeper,
    serveOwn: ownEndpoints(app, (path) => pluginRoom.endpoints.has(path), modelList(models)),
    fleetControl,
    pluginGate: new PluginGate(plugins),
    admission,
    chooser,
    waitingRoom,
    makeForwarder: (events) =>
      new Forwarder(
        {
          clock,
          chooser,
          room: waitingRoom,
          options: live.of(forwardOptions),
          random,
          pairs: pairStyleOf(kind, pairOptions, clock, bodyThread),
          nobodyAvailable: nobody,
        },
        events,
      ),
    observers: [
      meters,
      exchangeLog(
        log,
        live.of(({ accessLog }) => ({ isAccessLogged: accessLog })),
      ),
      pluginEnds,
      verdicts(breakers, health),
      fleetControl,
    ],
    get requestTimeoutMs() {
      return live.current.requestTimeoutSecs * 1000;
    },
  });

  const taker = reception({ live, pipeline, meters, cors });
  const doors = new Doors({ live, clock, retryBudget, taker, metricsText });
  let discovery: Discovery | null = null;
  let addresses;
  try {
    pluginRoom.endpoints.addTo(app);
    for (const named of namedWorkers(config)) addNamed(fleet, named);
    discovery = await startDiscovery(config, fleet, random, log);
    addresses = await doors.open();
  } catch (error) {
    discovery?.close();
    health.close();
    breakers.close();
    loopLag.close();
    choosing.table.close();
    doors.close();
    await pluginRoom.close();
    throw error;
  }
  const ticker = setInterval(() => {
    clock.nowMs = performance.now();
    doors.sweep();
    stalls.sweep(clock.nowMs);
    heapGuard.look(clock.nowMs);
    for (const worker of fleet.workers) worker.pool.sweep(clock.nowMs);
  }, TICK_MS);

  live.beforeChange((next) => doors.prepareReload(next));
  live.beforeChange((next) => {
    const secureContext = createSecureContext(workerCertificates(next));
    return () => {
      workerTls.secureContext = secureContext;
    };
  });
  live.beforeChange(() => access.prepareReload());
  live.beforeChange((next, now) => changeWorkers(fleet, namedWorkers(now), namedWorkers(next)));
  live.beforeChange((next, now) => () => {
    retryBudget.limitBytes = next.retryBufferBytes;
    fleet.setCap(next.workerMaxInflight);
    admission.onOptionsChange();
    waitingRoom.knock();
    reader.setPlaces(keyPlaces(next));
    if (next.logLevel !== now.logLevel) logging.setLevel(next.logLevel);
    chooser.explains = log.isLevelEnabled('debug');
    loadWatch?.close();
    loadWatch = watchLoad(next);
  });
  // The last one: a new policy takes over what the old one knows, and nothing may be placed in between.
  live.beforeChange(async (next, now) => {
    const change = await choosing.prepareChange(next, now);
    if (change === null) return null;
    return () => {
      change();
      waitingRoom.askAll();
    };
  });

  const { url, adminUrl, metricsUrl } = addresses;
  if (adminUrl !== null) log.info(`what steers the router or engines is taken on ${adminUrl}`);
  log.info({ policy: config.policy, workers: fleet.workers.length }, `listening on ${url}`);

  return {
    url,
    get config() {
      return live.current;
    },
    metricsUrl,
    adminUrl,
    fleet,
    pipeline,
    async reload(read = () => live.current) {
      logging.reopen();
      try {
        const { changed, ignored } = await live.change(read());
        if (ignored.length > 0) log.warn({ options: ignored }, 'changed, but only a restart puts these in force');
        log.info({ changed, workers: fleet.workers.length }, 'configuration reloaded');
      } catch (error) {
        // What is half written, or wrong, must not take the router down.
        log.error({ error: (error as Error).message }, 'configuration not reloaded, the old one stays');
      }
    },
    async close(graceMs = 0) {
      log.info({ underWay: pipeline.underWay.size, graceSecs: graceMs / 1000 }, 'draining');
      const cut = await drain(doors.listeners, pipeline, graceMs);
      discovery?.close();
      log[cut > 0 ? 'warn' : 'info']({ cut }, 'drained');
      health.close();
      breakers.close();
      loadWatch?.close();
      loopLag.close();
      clearInterval(ticker);
      for (const worker of fleet.workers) worker.pool.retire();
      choosing.table.close();
      reader.close();
      bodyThread.close();
      await pluginRoom.close();
      await store.flush();
      doors.close();
      await logging.close();
    },
  };
}
