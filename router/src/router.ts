import { createSecureContext } from 'node:tls';
import { createAdminApp, ownPathTest } from './admin/app.ts';
import { startChoosing } from './admin/policy-control.ts';
import { ownEndpoints } from './admin/own-endpoints.ts';
import { Admission } from './admit/admission.ts';
import { fairKeys } from './admit/fair-key.ts';
import { HeapGuard } from './admit/heap-guard.ts';
import { startAccess } from './admit/start-access.ts';
import { Chooser } from './choose/choose.ts';
import { FullWorkers } from './choose/full-workers.ts';
import { fileStore } from './choose/state-files.ts';
import { memoryStore } from './choose/state.ts';
import { WaitingRoom } from './choose/waiting-room.ts';
import { BodyReader } from './classify/body-reader.ts';
import { dialectOf } from './classify/classify.ts';
import { orders } from './classify/keys.ts';
import { normalPath } from './classify/path.ts';
import { serverCertificates, workerCertificates } from './config/certificates.ts';
import { splitList } from './config/load.ts';
import type { Config } from './config/options.ts';
import { Fleet } from './fleet/fleet.ts';
import { nobodyAvailable } from './fleet/availability.ts';
import { Breakers } from './fleet/breakers.ts';
import { Health } from './fleet/health.ts';
import { LoadWatch } from './fleet/load-watch.ts';
import { StallWatch } from './fleet/stalls.ts';
import { breakersOptions, healthOptions } from './fleet/options.ts';
import { WorkerPlaces } from './fleet/worker-places.ts';
import { refusalError, sendError } from './forward/errors.ts';
import { addForwarded } from './forward/headers.ts';
import { Forwarder } from './forward/forward.ts';
import { forwardOptions } from './forward/options.ts';
import type { CoarseClock } from './kit/clock.ts';
import { seededRandom } from './kit/rng.ts';
import { type Logger, createLogger, logObserver } from './observe/log.ts';
import { Meters } from './observe/meters.ts';
import { createMetricsServer } from './observe/metrics-server.ts';
import { createRegistry } from './observe/metrics.ts';
import { pluginEnds } from './observe/plugin-ends.ts';
import { verdicts } from './observe/verdicts.ts';
import { Pipeline } from './pipeline.ts';
import type { Plugin } from './plugin.ts';
import { listenOn, listenOr } from './wire/listen-on.ts';
import { Listener, TICK_MS } from './wire/listener.ts';
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
  readonly fleet: Fleet;
  readonly pipeline: Pipeline;
  /** Reads certificates and key files again; open connections go on. */
  reload(): void;
  /** Stops taking requests, lets those under way finish for at most `graceMs`, then cuts them. */
  close(graceMs?: number): Promise<void>;
}

/** Puts the rooms together and opens the doors. Rejects when an address can't be listened on. */
export async function startRouter(config: Config, parts: RouterParts = {}): Promise<Router> {
  const log = parts.log ?? createLogger(config.logLevel);
  const random = seededRandom(Math.floor(Math.random() * 2 ** 32));
  const clock: CoarseClock = { nowMs: performance.now() };
  const retryBudget = new RetryBudget(config.retryBufferBytes);
  const meters = new Meters();

  const access = startAccess(config, (path) => isOwn(path));
  const workerTls = { secureContext: createSecureContext(workerCertificates(config)) };
  const fleet = new Fleet({
    pool: { connectTimeoutMs: config.connectTimeoutMs, idleTimeoutMs: config.workerIdleTimeoutMs },
    tls: workerTls,
    key: access.workerKey,
    places: new WorkerPlaces(config.workerAllow),
    workerMaxInflight: config.workerMaxInflight,
  });
  const breakers = new Breakers(fleet, breakersOptions(config), performance.now.bind(performance), (event, worker) => {
    log[event === 'closed' ? 'info' : 'warn']({ worker: worker.url }, `circuit breaker: ${event.replace('_', ' ')}`);
  });
  const health = new Health(fleet, healthOptions(config), random, breakers, (event, worker, detail) => {
    log[event === 'readmitted' ? 'info' : 'warn']({ worker: worker.url, detail }, `worker ${event.replace('_', ' ')}`);
  });
  const stalls = new StallWatch(fleet, (worker) => {
    log.warn({ worker: worker.url, streams: worker.openStreams }, 'worker has streams open and says nothing');
    health.suspect(worker);
  });
  const loadWatch =
    config.engineLoadIntervalSecs > 0
      ? new LoadWatch(fleet, config.engineLoadIntervalSecs * 1000, config.healthCheckTimeoutSecs * 1000)
      : null;
  const waitingRoom = new WaitingRoom(() => fleet.isAllFull);
  const queueTimeoutMs = config.queueTimeoutSecs * 1000;
  const fullWorkers = new FullWorkers(fleet, waitingRoom, {
    // A queue has a size where somebody set the limit it stands at: caps of the router's own making refuse nobody.
    queueSize: config.workerMaxInflight > 0 ? config.queueSize : null,
    queueTimeoutMs,
  });
  const store =
    config.dataDir === undefined
      ? memoryStore()
      : fileStore(config.dataDir, (error) => log.error({ error: error.message }, '--data-dir: state not written'));
  const choosing = await startChoosing(config, {
    fleet,
    random,
    nowMs: () => clock.nowMs,
    state: (name) => store.open(name),
    knock: () => waitingRoom.knock(),
    log,
  });
  const keyPlaces = orders[config.keyOrder](config.sessionHeaders);
  const reader = new BodyReader(keyPlaces);
  const chooser = new Chooser(fleet, choosing.table, reader, fullWorkers, log.isLevelEnabled('debug'));
  const heapGuard = new HeapGuard();
  const nobody = () => nobodyAvailable(fleet, breakers);
  const admission = new Admission(
    {
      maxConcurrent: config.maxConcurrentRequests,
      workerMaxInflight: config.workerMaxInflight,
      ratePerSec: config.rateLimitTokensPerSecond,
      queueSize: config.queueSize,
      queueTimeoutMs,
    },
    fleet,
    heapGuard,
    fairKeys(keyPlaces),
    nobody,
    (seconds) => meters.queueWait.observe(seconds),
  );
  fleet.onEvent((event, worker) => {
    waitingRoom.knock();
    if (event !== 'changed') log.info({ worker: worker.url }, `worker ${event}`);
  });

  const registry = createRegistry({
    meters,
    fleet,
    openConnections: () => listener.connections.size,
    inFlight: () => pipeline.underWay.size,
    held: () => waitingRoom.counts(),
    admission: () => admission,
    shedByFullWorkers: () => fullWorkers.shed,
    refusedConnections: () => listener.limits.refused,
    retryBufferBytes: () => retryBudget.usedBytes,
    breakers,
    stalls,
  });
  const metricsText = async () => ({ contentType: registry.contentType, text: await registry.metrics() });
  const policies = {
    ...choosing.control,
    async set(model: string, policy: string) {
      await choosing.control.set(model, policy);
      log.info({ policy, model }, 'policy changed');
      waitingRoom.askAll();
    },
  };
  const app = createAdminApp({ fleet, breakers, metricsText, isDraining: () => listener.isDraining, policies });

  const isOwn = ownPathTest(app);
  const { doorkeeper, cors } = access;

  const pipeline = new Pipeline({
    doorkeeper,
    serveOwn: ownEndpoints(app),
    admission,
    chooser,
    waitingRoom,
    makeForwarder: (events) =>
      new Forwarder(
        {
          clock,
          chooser,
          room: waitingRoom,
          options: forwardOptions(config),
          random,
          nobodyAvailable: nobody,
        },
        events,
      ),
    // The guard reads what the other plugins made of a body.
    plugins: [...(parts.plugins ?? []), ...(doorkeeper === null ? [] : [doorkeeper.bodyGuard])],
    observers: [meters, logObserver(log), pluginEnds(log), verdicts(breakers, health)],
    requestTimeoutMs: config.requestTimeoutSecs * 1000,
  });

  const listener = new Listener(
    clock,
    retryBudget,
    {
      host: config.host,
      port: config.port,
      tls: serverCertificates(config),
      maxPayloadBytes: config.maxPayloadSize,
      allowsHalfClose: config.allowHalfClose,
      maxConnections: config.maxConnections,
      maxConnectionsPerClient: config.maxConnectionsPerClient,
      timeouts: {
        headMs: config.clientHeadTimeoutSecs * 1000,
        bodyIdleMs: config.clientBodyTimeoutSecs * 1000,
        keepAliveMs: config.clientIdleTimeoutSecs * 1000,
        writeMs: config.clientWriteTimeoutSecs * 1000,
      },
    },
    {
      onRequest(head, body, connection) {
        if (config.forwardedHeaders) {
          const clientAddress = connection.socket.remoteAddress ?? 'unknown';
          addForwarded(head, { clientAddress, scheme: listener.isTls ? 'https' : 'http' });
        }
        const sink = cors === null ? connection : cors.sinkFor(head, connection);
        if (sink === null) return;
        const x = pipeline.dispatch(head, body, sink);
        if (x.outcome === null) connection.watcher = x;
      },
      onRefused(refusal, target, connection) {
        meters.refusedHeads++;
        sendError(connection, refusalError(refusal), dialectOf(normalPath(target)));
      },
    },
  );

  const adminListener = config.adminPort === undefined ? null : listener.adminPort(config.adminHost, config.adminPort);
  const listeners = adminListener === null ? [listener] : [listener, adminListener];
  const metricsServer = createMetricsServer(metricsText);
  let port: number;
  let metricsPort: number;
  let adminPort = 0;
  try {
    for (const url of splitList(config.workerUrls)) {
      const worker = fleet.add(url, { isOperators: true });
      if (typeof worker === 'string') throw new Error(`--worker-urls: ${worker}`);
    }
    port = await listenOr(() => listener.listen(), `--port ${config.port}`);
    if (adminListener !== null)
      adminPort = await listenOr(() => adminListener.listen(), `--admin-port ${config.adminPort}`);
    metricsPort = await listenOr(
      () => listenOn(metricsServer, { port: config.prometheusPort, host: config.prometheusHost }),
      `--prometheus-port ${config.prometheusPort}`,
    );
  } catch (error) {
    health.close();
    breakers.close();
    choosing.table.close();
    for (const each of listeners) each.close();
    throw error;
  }
  const ticker = setInterval(() => {
    clock.nowMs = performance.now();
    for (const each of listeners) each.sweep();
    stalls.sweep(clock.nowMs);
    heapGuard.look(clock.nowMs);
    for (const worker of fleet.workers) worker.pool.sweep(clock.nowMs);
  }, TICK_MS);

  const scheme = listener.isTls ? 'https' : 'http';
  const urlOf = (host: string, at: number) => `${scheme}://${host.includes(':') ? `[${host}]` : host}:${at}`;
  const url = urlOf(config.host, port);
  const adminUrl = adminListener === null ? null : urlOf(config.adminHost, adminPort);
  if (adminUrl !== null) log.info(`what steers the router or engines is taken on ${adminUrl}`);
  log.info({ policy: config.policy, workers: fleet.workers.length }, `listening on ${url}`);

  return {
    url,
    metricsUrl: `http://${config.prometheusHost}:${metricsPort}/metrics`,
    adminUrl,
    fleet,
    pipeline,
    reload() {
      const reloads = {
        certificate: () => {
          const tls = serverCertificates(config);
          if (tls !== null) for (const each of listeners) each.reloadTls(tls);
        },
        'certificate for workers': () => {
          workerTls.secureContext = createSecureContext(workerCertificates(config));
        },
        keys: () => access.reload(),
      };
      let hasFailed = false;
      for (const [what, reload] of Object.entries(reloads)) {
        try {
          reload();
        } catch (error) {
          // What is half written must not take the router down; the old one goes on.
          log.error({ error: (error as Error).message }, `${what} not reloaded, the old one stays`);
          hasFailed = true;
        }
      }
      if (!hasFailed) log.info('certificates and keys reloaded');
    },
    async close(graceMs = 0) {
      for (const each of listeners) each.drain();
      const deadline = performance.now() + graceMs;
      while (pipeline.underWay.size > 0 && performance.now() < deadline) {
        await new Promise((resolve) => setTimeout(resolve, Math.min(50, graceMs)));
      }
      health.close();
      breakers.close();
      loadWatch?.close();
      clearInterval(ticker);
      pipeline.close();
      for (const each of listeners) each.close();
      for (const worker of fleet.workers) worker.pool.closeIdle();
      choosing.table.close();
      await store.flush();
      await new Promise((resolve) => metricsServer.close(resolve));
    },
  };
}
