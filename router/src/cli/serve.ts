import { resolve } from 'node:path';
import { controlKeyOf } from '../admit/start-access.ts';
import { ConfigError } from '../config/load.ts';
import { type Router, startRouter } from '../router.ts';
import type { ReadConfig } from './configured.ts';
import { parent } from './parent.ts';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';

/** What runs beside a router and ends with it. */
export interface Companions {
  /** Called once the router listens. @param fail ends the router with exit code 1, unless it has workers of engines other than these */
  start(fail: (urls: ReadonlySet<string>) => void): void;
  /** Called on SIGHUP: log files may have been renamed. */
  reopenLogs(): void;
  /** Called when the router has drained. */
  stop(): Promise<void>;
}

/**
 * Runs a router until it is told to stop.
 *
 * @param readConfig reads flags, environment and file anew each time
 */
export async function serve(readConfig: ReadConfig, companions?: Companions): Promise<void> {
  const config = readConfig();
  process.on('unhandledRejection', (error) => report('unhandled promise rejection', error));
  keepYoungGenerationSmall();
  // A signal during the start is handled after it; without a listener it would end the process.
  const started = startRouter(config).catch((error: unknown) => {
    throw new ConfigError((error as Error).message);
  });
  // A start that fails is reported below, and ends the process.
  const whenStarted = (act: (router: Router) => unknown): void => void started.then(act, () => {});
  process.on('SIGHUP', () => {
    companions?.reopenLogs();
    whenStarted((router) => router.reload(() => readConfig(router.config)));
  });
  let isStopping = false;
  let signals = 0;
  let code = 0;
  const stop = (exitCode: number): void => {
    signals++;
    // A second signal shortens the drain but clients are still answered; a third one ends everything.
    if (signals > 2) process.exit(1);
    code = signals === 2 ? 1 : exitCode;
    if (isStopping) return whenStarted((router) => router.close().catch(() => {}));
    isStopping = true;
    whenStarted(async (router) => {
      await router.close(router.config.shutdownGracePeriodSecs * 1000).catch(notClosed);
      await companions?.stop();
      process.exit(code);
    });
  };
  process.on('SIGTERM', () => stop(0));
  process.on('SIGINT', () => stop(0));
  const { url, metricsUrl, adminUrl, fleet } = await started;
  process.on('uncaughtException', (error) => report('uncaught exception', error));
  // Where options come from a file, the parent does not know them.
  const certificate = config.tlsCertPath === undefined ? null : resolve(config.tlsCertPath);
  parent?.tell({ url, metricsUrl, adminUrl, controlKey: controlKeyOf(config), certificate });
  void parent?.gone.then(() => isStopping || stop(0));
  if (!isStopping)
    companions?.start((urls) => {
      if (!isStopping && fleet.workers.every(({ engineUrl }) => urls.has(engineUrl))) stop(1);
    });
}

/** A disk that fails, for example, must not keep the process, nor its engines, from ending. */
const notClosed = (error: unknown): void =>
  void process.stderr.write(`turnout: not everything was closed in order: ${(error as Error).message}\n`);

let faults = 0;

/**
 * A bug of the router or of a plugin does not end the requests of others. A connection on whose bytes the router failed is closed, so no
 * response continues with wrong bytes; a fault elsewhere (a timer, a forgotten promise) may leave a count wrong.
 */
function report(kind: string, error: unknown): void {
  // Bounds the log, also if reporting is what fails.
  if (++faults > 16 && (faults & (faults - 1)) !== 0) return;
  const words = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.stderr.write(`turnout: ${kind} (${faults} since the start), the router goes on: ${words}\n`);
}

/** Of each half of the young generation. V8's own limit on Node 24 is 64 MB. */
const YOUNG_MB = 16;
const YOUNG_LOOK_MS = 250;
const YOUNG_FLAGS = /--(?:max|min)[-_]semi[-_]space[-_]size|--semi[-_]space[-_]growth[-_]factor/;

/**
 * V8 doubles its young generation each time that as much as it holds survived collections. A process whose objects mostly die soon gains
 * nothing from that. The limit can only be set when Node starts, but the growth factor is read at each growth.
 *
 * @returns applies the limit; called a few times a second, because V8 shrinks the young generation when there is little work
 */
export function youngGenerationLimit(): () => void {
  let mayGrow = true;
  return () => {
    const space = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
    const now = (space?.space_size ?? 0) / 2 < YOUNG_MB * 2 ** 20;
    if (now === mayGrow) return;
    mayGrow = now;
    setFlagsFromString(`--semi-space-growth-factor=${mayGrow ? 2 : 1}`);
  };
}

/** Only if no size was given to Node. */
export function keepYoungGenerationSmall(): void {
  if (YOUNG_FLAGS.test([process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' '))) return;
  // The factor applies to all threads, so later threads begin with a large young generation that they may never use.
  setFlagsFromString(`--min-semi-space-size=${YOUNG_MB}`);
  setInterval(youngGenerationLimit(), YOUNG_LOOK_MS).unref();
}
