import { createAdminApp, ownPathTest } from './admin/app.ts';
import { modelList } from './admin/model-list.ts';
import { startChoosing } from './admin/policy-control.ts';
import { fleetListener } from './admin/fleet-listener.ts';
import { prepareReloads } from './admin/reload.ts';
import { ownEndpoints } from './admin/own-endpoints.ts';
import { Admission } from './admit/admission.ts';
import { fairKeys } from './admit/fair-key.ts';
import { HeapGuard } from './admit/heap-guard.ts';
import { admissionOptions } from './admit/options.ts';
import { startAccess } from './admit/start-access.ts';
import { Chooser } from './choose/choose.ts';
import { FullWorkers, fullWorkersOptions } from './choose/full-workers.ts';
import { SessionHomes } from './choose/session-homes.ts';
import { SlowStart } from './choose/slow-start.ts';
import { fileStore } from './choose/state-files.ts';
import { memoryStore } from './choose/state.ts';
import { HoldQueue } from './choose/hold-queue.ts';
import { BodyReader } from './classify/body-reader.ts';
import { classify } from './classify/classify.ts';
import { keyOrders } from './classify/routing-keys.ts';
import { roleAssigner } from './classify/pair-roles.ts';
import { markFolder } from './config/folder-owner.ts';
import { checkFolder, foldersOf, makeFolder } from './config/folder.ts';
import { namedWorkers } from './config/named-workers.ts';
import { LiveConfig } from './config/live.ts';
import { pairKind } from './config/pairs.ts';
import { withoutEffect } from './config/option-problems.ts';
import type { Config } from './config/options.ts';
import { Fleet } from './fleet/fleet.ts';
import { noAvailableWorkers } from './fleet/availability.ts';
import { type Discovery, startDiscovery } from './fleet/discover/kubernetes.ts';
import { addNamed } from './fleet/change-workers.ts';
import { fleetOptions, healthOptions, poolOptions } from './fleet/fleet-options.ts';
import { VersionLabels } from './fleet/version-labels.ts';
import { watchFleet } from './fleet/watch-fleet.ts';
import { WorkerTls } from './fleet/worker-tls.ts';
import { readWorkerUrls } from './fleet/worker-url.ts';
import { FleetControl } from './forward/control/fleet-control.ts';
import { Failover } from './forward/failover.ts';
import { Forwarder } from './forward/forward.ts';
import { HungRequests } from './forward/hung-requests.ts';
import { forwardOptions } from './forward/options.ts';
import { startBodyThread } from './forward/body-calls.ts';
import { pairStyleOf } from './forward/pd/pair-style.ts';
import { addRankField } from './forward/rank-field.ts';
import type { CoarseClock } from './kit/clock.ts';
import { Closers } from './kit/closers.ts';
import { seededRandom } from './kit/rng.ts';
import { controlLog, exchangeLogOptions, logMove } from './observe/exchange-log.ts';
import { fleetLog } from './observe/fleet-log.ts';
import { type Logger, givenLog, openLog } from './observe/log.ts';
import { logFiles } from './observe/log-targets.ts';
import { LoopLag } from './observe/loop-lag.ts';
import { Meters } from './observe/meters.ts';
import { createRegistry, metricsPage } from './observe/metrics.ts';
import { closingOf } from './listen/closing.ts';
import { type Dispatch, Dispatcher } from './listen/dispatch.ts';
import { Ports, checkPorts } from './listen/ports.ts';
import { requestEntry } from './listen/request-entry.ts';
import { RequestLogs } from './observe/request-logs.ts';
import { healthFeedback } from './observe/health-feedback.ts';
import { Pipeline } from './pipeline.ts';
import { Plugins } from './phases/chain.ts';
import type { Exchange } from './exchange.ts';
import type { Plugin } from './plugin.ts';
import { startPlugins } from './plugins/start.ts';
import { recorderPlugins } from './recorder/plugins.ts';
import { startRecorder } from './recorder/tap/recorder.ts';
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
  /** Sends a request of this process the way of a client's request. */
  readonly dispatch: Dispatch;
  /** Puts what `read` answers in force, and reads files of certificates and keys again; open connections go on. Never rejects. */
  reload(read?: () => Config): Promise<void>;
  /** Stops taking requests, lets those under way finish for at most `graceMs`, then cuts them. A second call cuts them at once. */
  close(graceMs?: number): Promise<void>;
}

/** Puts the rooms together and opens the ports. Rejects when that can't be done, an address is taken for example: nothing stays open then. */
export async function startRouter(config: Config, parts: RouterParts = {}): Promise<Router> {
  await checkPorts(config);
  for (const [flag, path] of foldersOf(config)) makeFolder(flag, path);
  const closers = new Closers();
  try {
    const { open } = await assemble(config, parts, closers);
    return await open();
  } catch (error) {
    // Why it does not start is what counts, not what else goes wrong on the way back.
    await closers.close().catch(() => {});
    throw error;
  }
}

/**
 * Does everything that a start does before the router opens a port, writes to the data folder or contacts an engine: loads plugins,
 * policies, the tokenizer, keys and certificates. Rejects with the words of the start.
 */
export async function checkRouter(config: Config, log: Logger): Promise<void> {
  for (const [flag, path] of foldersOf(config)) checkFolder(flag, path);
  for (const { url, flag } of namedWorkers(config)) {
    const address = readWorkerUrls(url, null);
    if (typeof address === 'string') throw new Error(`${flag}: ${address}`);
  }
  const { dataDir: _, logDir: __, ...inMemory } = config;
  const closers = new Closers();
  try {
    await assemble(inMemory, { log }, closers);
  } finally {
    await closers.close();
  }
}

/** From what everything needs to the ports. `closers` learns of all that has to be closed, as it is opened. */
async function assemble(
  config: Config,
  parts: RouterParts,
  closers: Closers,
): Promise<{ open: () => Promise<Router> }> {
  const live = new LiveConfig(config);
  const logging =
    parts.log === undefined ? openLog(config.logLevel, logFiles(config), config.logFormat) : givenLog(parts.log);
  closers.add(() => logging.close());
  const log = logging.logger;
  for (const line of withoutEffect(config)) log.warn(line);
  if (config.dataDir !== undefined) {
    const { otherPid, unmark } = markFolder(config.dataDir);
    closers.add(unmark);
    if (otherPid !== null) log.info(`another router (pid ${otherPid}) uses --data-dir ${config.dataDir}, too`);
  }
  const random = seededRandom(Math.floor(Math.random() * 2 ** 32));
  const clock: CoarseClock = { nowMs: performance.now() };
  const retryBudget = new RetryBudget(config.retryBufferBytes);
  const meters = new Meters();
  const loopLag = new LoopLag();
  closers.add(() => loopLag.close());

  // The engines, and who may ask them.
  const access = startAccess(config, {
    isOwn: (path) => isOwn(path),
    isOfPluginForClients: (path) => pluginRoom.endpoints.areForClients(path),
  });
  const workerTls = new WorkerTls(config);
  const pool = live.of(poolOptions);
  const fleet = new Fleet({ pool, tls: workerTls, key: access.workerKey, ...fleetOptions(config) });
  closers.add(() => fleet.close());
  const labels = new VersionLabels(fleet, live.of(healthOptions));
  closers.add(() => labels.close());

  const store =
    config.dataDir === undefined
      ? memoryStore()
      : fileStore(config.dataDir, (error) => log.error({ error: error.message }, '--data-dir: state not written'));
  closers.add(() => store.flush());
  const recorder = await startRecorder(config, labels, log);
  const dispatcher = new Dispatcher(retryBudget);
  const { dispatch } = dispatcher;
  const policyFor = (x: Exchange): string => table.nameFor(x);
  const tinkerParts = { live, fleet, dispatch, log, policyFor, models: () => models, state: store };
  const tinker = config.tinker ? (await import('./tinker/tinker.ts')).startTinker(tinkerParts) : null;
  const given = [...(parts.plugins ?? []), ...(tinker?.plugins ?? []), ...(recorder?.plugins ?? [])];
  const builtIns = recorderPlugins(recorder);
  const pluginRoom = await startPlugins(given, { live, fleet, dispatch, meters, log, builtIns });
  closers.add(() => pluginRoom.close());

  // Who serves a request.
  const holdQueue = new HoldQueue((holder) => holder !== fullWorkers && fleet.isAllFull);
  const homes = new SessionHomes(
    () => clock.nowMs,
    () => live.current.sessionTtlSecs * 1000,
  );
  homes.onMoved = (x, move) => logMove(log, x, move);
  const choosing = await startChoosing(live, {
    fleet,
    random,
    nowMs: () => clock.nowMs,
    state: (name) => store.open(name),
    holdQueue,
    homes,
    log,
  });
  const { table } = choosing;
  closers.add(() => table.close());
  const slowStart = new SlowStart(fleet, () => clock.nowMs);
  const hungRequests = new HungRequests(fleet, () => pipeline.underWay);
  const listener = fleetListener({ log, slowStart, table, holdQueue, hungRequests });
  const watch = watchFleet(fleet, live, random, labels, listener);
  closers.add(() => watch.close());
  const { breakers, health, models, stalls, pauses } = watch;
  const fullWorkers = new FullWorkers(fleet, holdQueue, live.of(fullWorkersOptions), models);
  const keys = live.of(({ keyOrder, sessionHeaders }) => {
    const places = keyOrders[keyOrder](sessionHeaders);
    return { places, fair: fairKeys(places) };
  });
  const bodyThread = startBodyThread();
  closers.add(() => bodyThread.close());
  const reader = new BodyReader(keys.places, (body, question) => bodyThread.run('scan', body, question));
  const explains = log.isLevelEnabled('debug');
  const chooser = new Chooser(fleet, table, reader, { full: fullWorkers, slowStart, models, explains, homes });
  fleet.onEvent(() => holdQueue.retryHeld());
  fleet.onEvent(fleetLog(log, fleet, breakers));

  const heapGuard = new HeapGuard();
  const nobody = () => noAvailableWorkers(fleet, breakers);
  const admission = new Admission({
    options: live.of(admissionOptions),
    fleet,
    models,
    heap: heapGuard,
    keyOf: (head) => keys.fair(head),
    noAvailableWorkers: nobody,
    onWaited: (seconds) => meters.queueWait.observe(seconds),
  });

  // What the router answers itself.
  let discovery: Discovery | null = null;
  const registry = createRegistry({
    meters,
    fleet,
    homes,
    openConnections: () => ports.data.connections.size,
    inFlight: () => pipeline.underWay.size,
    held: () => holdQueue.counts(),
    admission: () => admission,
    shedByFullWorkers: () => fullWorkers.shed,
    refusedConnections: () => ports.data.limits.refused,
    retryBufferBytes: () => retryBudget.usedBytes,
    breakers,
    stalls,
    loopLag: loopLag.histogram,
    droppedLogLines: () => logging.droppedLines(),
    discovery: () => discovery,
    trajectories: () => recorder?.state ?? null,
    tinker: () => tinker?.counts() ?? null,
  });
  const metricsText = async () => ({
    contentType: registry.contentType,
    text: (await metricsPage(registry)) + (await pluginRoom.metricsText()),
  });
  const app = createAdminApp({
    fleet,
    breakers,
    workerApi: config.workerApi,
    startupTimeoutMs: () => live.current.workerStartupTimeoutSecs * 1000,
    healthTimeoutMs: () => live.current.healthCheckTimeoutSecs * 1000,
    metricsText,
    isDraining: () => ports.data.isDraining,
    policies: choosing.control,
    homes,
    requests: () => pipeline.underWay,
    sessionHeaders: () => live.current.sessionHeaders,
    record: recorder,
  });
  const isOwn = ownPathTest(app);
  pluginRoom.endpoints.addTo(app);

  // The road: pipeline.ts is its picture.
  const { authorizer, cors } = access;
  const fleetControl = new FleetControl({
    fleet,
    table,
    health,
    models,
    pauses,
    clock,
    config,
    onResult: controlLog(log),
  });
  // The guard reads what the other plugins made of a body.
  const plugins = new Plugins([...pluginRoom.plugins, ...(authorizer === null ? [] : [authorizer.bodyGuard])]);
  addRankField(fleet, plugins, bodyThread);
  const ids = live.of(({ requestIdHeaders }) => ({ requestIdHeaders }));
  const kind = pairKind(config);
  const assignRoles = roleAssigner(kind);
  const pairOptions = live.of(({ pdMinPromptTokens }) => ({ minPromptTokens: pdMinPromptTokens }));
  const sessionEnds = recorder === null ? [] : [recorder.sessionEnds];
  const requestLogs = new RequestLogs(log, live.of(exchangeLogOptions), policyFor, () => pipeline.underWay);
  closers.add(() => requestLogs.close());
  const forwarding = live.of(forwardOptions);
  const failover = new Failover({ options: forwarding, clock, random, eligibleFor: (x) => chooser.eligibleFor(x) });
  const pairs = pairStyleOf(kind, pairOptions, clock, bodyThread);
  const pipeline = new Pipeline({
    classify: (x) => classify(x, ids.requestIdHeaders) ?? assignRoles(x),
    authorizer,
    serveOwn: ownEndpoints(app, pluginRoom.endpoints.maxBytes, modelList(models)),
    fleetControl,
    plugins,
    admission,
    chooser,
    holdQueue,
    noAvailableWorkers: nobody,
    failover,
    makeForwarder: (listener, notes) =>
      new Forwarder({ clock, options: forwarding, retries: failover, pairs }, listener, notes),
    observers: [meters, ...requestLogs.observers, ...sessionEnds, healthFeedback(breakers, health), fleetControl],
    get requestTimeoutMs() {
      return live.current.requestTimeoutSecs * 1000;
    },
  });

  dispatcher.connect(pipeline);
  const ports = new Ports({
    live,
    clock,
    retryBudget,
    requests: requestEntry({ live, pipeline, meters, refusals: requestLogs.refusals, cors }),
    metricsText,
  });
  closers.add(() => ports.close());

  // The fleet that is named, and the ports.
  const open = async (): Promise<Router> => {
    for (const named of namedWorkers(config)) addNamed(fleet, named);
    discovery = await startDiscovery(config, fleet, random, log);
    closers.add(() => discovery?.close());
    const { url, adminUrl, metricsUrl } = await ports.open();
    const ticker = setInterval(() => {
      clock.nowMs = performance.now();
      ports.sweep();
      stalls.sweep(clock.nowMs);
      hungRequests.sweep();
      homes.sweep(clock.nowMs);
      requestLogs.sweep(clock.nowMs);
      heapGuard.look(clock.nowMs);
      for (const worker of fleet.workers) worker.pool.sweep(clock.nowMs);
    }, TICK_MS);
    closers.add(() => clearInterval(ticker));
    if (adminUrl !== null) log.info(`admin endpoints listening on ${adminUrl}`);
    log.info(`metrics on ${metricsUrl}`);
    log.info({ policy: config.policy, workers: fleet.workers.length }, `listening on ${url}`);
    if (access.warning !== null) log.warn(access.warning);
    await tinker?.resume();
    if (fleet.workers.length === 0 && !config.serviceDiscovery)
      log.info('no workers yet: give --worker-urls, or POST /add_worker');

    const reload = prepareReloads({
      live,
      logging,
      ports,
      workerTls,
      access,
      fleet,
      watch,
      retryBudget,
      admission,
      holdQueue,
      keys,
      reader,
      chooser,
      choosing,
    });
    return {
      url,
      metricsUrl,
      adminUrl,
      get config() {
        return live.current;
      },
      fleet,
      pipeline,
      dispatch,
      reload: (read = () => live.current) => reload(read),
      close: closingOf({ log, pipeline, listeners: ports.listeners, closers }),
    };
  };
  return { open };
}
