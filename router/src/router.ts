import { readFileSync } from 'node:fs';
import { createAdminApp } from './admin/app.ts';
import { drain } from './admin/drain.ts';
import { startChoosing } from './admin/policy-control.ts';
import { ownEndpoints } from './admin/own-endpoints.ts';
import { ConcurrencyLimit } from './admit/limits.ts';
import { Chooser } from './choose/choose.ts';
import { fileStore } from './choose/state-files.ts';
import { memoryStore } from './choose/state.ts';
import { WaitingRoom } from './choose/waiting-room.ts';
import { BodyReader } from './classify/body-reader.ts';
import { classify, dialectOf } from './classify/classify.ts';
import { orders } from './classify/keys.ts';
import { normalPath } from './classify/path.ts';
import { splitList } from './config/load.ts';
import { LiveConfig } from './config/live.ts';
import type { Config } from './config/options.ts';
import { changeWorkers } from './fleet/change-workers.ts';
import { Fleet } from './fleet/fleet.ts';
import { Health } from './fleet/health.ts';
import { LoadWatch } from './fleet/load-watch.ts';
import { refusalError, sendError } from './forward/errors.ts';
import { addForwarded } from './forward/headers.ts';
import { Forwarder } from './forward/forward.ts';
import type { CoarseClock } from './kit/clock.ts';
import { seededRandom } from './kit/rng.ts';
import { exchangeLog } from './observe/exchange-log.ts';
import { type Logger, givenLog, openLog } from './observe/log.ts';
import { RotatingFile } from './observe/log-targets.ts';
import { LoopLag } from './observe/loop-lag.ts';
import { Meters } from './observe/meters.ts';
import { createMetricsServer } from './observe/metrics-server.ts';
import { createRegistry, metricsPage } from './observe/metrics.ts';
import { pluginEnds } from './observe/plugin-ends.ts';
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
  const random = seededRandom(Math.floor(Math.random() * 2 ** 32));
  const clock: CoarseClock = { nowMs: performance.now() };
  const retryBudget = new RetryBudget(config.retryBufferBytes);
  const meters = new Meters();
  const loopLag = new LoopLag();

  const fleet = new Fleet({
    pool: live.of(({ connectTimeoutMs, workerIdleTimeoutMs: idleTimeoutMs }) => ({ connectTimeoutMs, idleTimeoutMs })),
    ca: config.caCertPath === undefined ? null : readFileSync(config.caCertPath, 'utf8'),
  });
  const health = new Health(
    fleet,
    live.of((options) => ({
      path: options.healthCheckEndpoint,
      intervalMs: options.healthCheckIntervalSecs * 1000,
      timeoutMs: options.healthCheckTimeoutSecs * 1000,
      failureThreshold: options.healthFailureThreshold,
      successThreshold: options.healthSuccessThreshold,
      isEnabled: !options.disableHealthCheck,
    })),
    random,
    (event, worker, detail) => {
      log[event === 'readmitted' ? 'info' : 'warn'](
        { worker: worker.url, detail },
        `worker ${event.replace('_', ' ')}`,
      );
    },
  );
  const watchLoad = ({ engineLoadIntervalSecs: secs, healthCheckTimeoutSecs }: Config): LoadWatch | null =>
    secs > 0 ? new LoadWatch(fleet, secs * 1000, healthCheckTimeoutSecs * 1000) : null;
  let loadWatch = watchLoad(config);
  const waitingRoom = new WaitingRoom();
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
  });
  const reader = new BodyReader(orders[config.keyOrder](config.sessionHeaders));
  const chooser = new Chooser(fleet, choosing.table, reader, log.isLevelEnabled('debug'));
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
    retryBufferBytes: () => retryBudget.usedBytes,
    loopLag: loopLag.histogram,
    droppedLogLines: () => logging.droppedLines(),
  });
  const metricsText = async () => ({ contentType: registry.contentType, text: await metricsPage(registry) });
  const policies = {
    ...choosing.control,
    async set(model: string, policy: string) {
      await choosing.control.set(model, policy);
      log.info({ policy, model }, 'policy changed');
      waitingRoom.askAll();
    },
  };
  const app = createAdminApp({ fleet, metricsText, isDraining: () => listener.isDraining, policies });

  const limit = new ConcurrencyLimit(config.maxConcurrentRequests);
  const ids = live.of(({ requestIdHeaders }) => ({ requestIdHeaders }));
  const pipeline = new Pipeline({
    classify: (x) => classify(x, ids.requestIdHeaders),
    serveOwn: ownEndpoints(app),
    limit,
    chooser,
    waitingRoom,
    makeForwarder: (events) =>
      new Forwarder(
        clock,
        chooser,
        waitingRoom,
        live.of((options) => ({
          maxRetries: options.disableRetries ? 0 : options.retryMaxRetries,
          streamCoalesceMs: options.streamCoalesceMs,
        })),
        events,
      ),
    plugins: parts.plugins ?? [],
    observers: [
      meters,
      exchangeLog(
        log,
        live.of(({ accessLog }) => ({ isAccessLogged: accessLog })),
      ),
      pluginEnds(log),
      {
        attemptFailed: (_x, worker, failure) => {
          if (failure !== 'stale') health.suspect(worker);
        },
        finished: () => {},
      },
    ],
    get requestTimeoutMs() {
      return live.current.requestTimeoutSecs * 1000;
    },
  });

  const readTls = ({ tlsCertPath, tlsKeyPath }: Config) =>
    tlsCertPath === undefined ? null : { cert: readFileSync(tlsCertPath), key: readFileSync(tlsKeyPath!) };
  const tls = readTls(config);
  const listener = new Listener(
    clock,
    retryBudget,
    live.of((options) => ({
      host: options.host,
      port: options.port,
      reusePort: options.reusePort,
      tls,
      maxPayloadBytes: options.maxPayloadSize,
      allowsHalfClose: options.allowHalfClose,
      timeouts: {
        headMs: options.clientHeadTimeoutSecs * 1000,
        bodyIdleMs: options.clientBodyTimeoutSecs * 1000,
        keepAliveMs: options.clientIdleTimeoutSecs * 1000,
      },
    })),
    {
      onRequest(head, body, connection) {
        if (live.current.forwardedHeaders) {
          const clientAddress = connection.socket.remoteAddress ?? 'unknown';
          addForwarded(head, { clientAddress, scheme: listener.isTls ? 'https' : 'http' });
        }
        const x = pipeline.dispatch(head, body, connection);
        if (x.outcome === null) connection.watcher = x;
      },
      onRefused(refusal, target, connection) {
        meters.refusedHeads++;
        sendError(connection, refusalError(refusal), dialectOf(normalPath(target)));
      },
    },
  );

  const metricsServer = createMetricsServer(metricsText);
  let port: number;
  let metricsPort: number;
  try {
    for (const url of splitList(config.workerUrls)) {
      const worker = fleet.add(url);
      if (typeof worker === 'string') throw new Error(`--worker-urls: ${worker}`);
    }
    port = await listenOr(() => listener.listen(), `--port ${config.port}`);
    metricsPort = await listenOr(
      () =>
        listenOn(metricsServer, {
          port: config.prometheusPort,
          host: config.prometheusHost,
          reusePort: config.reusePort,
        }),
      `--prometheus-port ${config.prometheusPort}`,
    );
  } catch (error) {
    health.close();
    loopLag.close();
    choosing.table.close();
    listener.close();
    throw error;
  }
  const ticker = setInterval(() => {
    clock.nowMs = performance.now();
    listener.sweep();
    for (const worker of fleet.workers) worker.pool.sweep(clock.nowMs);
  }, TICK_MS);

  live.beforeChange((next) => {
    const renewed = readTls(next);
    return renewed === null ? null : listener.prepareTls(renewed);
  });
  live.beforeChange((next, now) => changeWorkers(fleet, splitList(now.workerUrls), splitList(next.workerUrls)));
  live.beforeChange((next, now) => () => {
    retryBudget.limitBytes = next.retryBufferBytes;
    limit.max = next.maxConcurrentRequests;
    reader.setPlaces(orders[next.keyOrder](next.sessionHeaders));
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

  const scheme = listener.isTls ? 'https' : 'http';
  const hostText = config.host.includes(':') ? `[${config.host}]` : config.host;
  const url = `${scheme}://${hostText}:${port}`;
  log.info({ policy: config.policy, workers: fleet.workers.length }, `listening on ${url}`);

  return {
    url,
    get config() {
      return live.current;
    },
    metricsUrl: `http://${config.prometheusHost}:${metricsPort}/metrics`,
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
      const cut = await drain(listener, pipeline, graceMs);
      log[cut > 0 ? 'warn' : 'info']({ cut }, 'drained');
      health.close();
      loadWatch?.close();
      loopLag.close();
      clearInterval(ticker);
      for (const worker of fleet.workers) worker.pool.closeIdle();
      choosing.table.close();
      reader.close();
      await store.flush();
      metricsServer.close();
      metricsServer.closeAllConnections();
      await logging.close();
    },
  };
}

function logFiles({ logDir, logMaxBytes, logMaxFiles }: Config): RotatingFile | undefined {
  try {
    return logDir === undefined ? undefined : new RotatingFile(logDir, logMaxBytes, logMaxFiles);
  } catch (error) {
    throw new Error(`--log-dir: ${(error as Error).message}`, { cause: error });
  }
}
