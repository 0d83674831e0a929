import { markFolder } from '../config/folder-owner.ts';
import { LiveConfig } from '../config/live.ts';
import type { Config } from '../config/options.ts';
import { withoutEffect } from '../config/option-problems.ts';
import type { Exchange } from '../exchange.ts';
import type { Discovery } from '../fleet/discover/kubernetes.ts';
import { ReadPace } from '../forward/read-pace.ts';
import type { CoarseClock } from '../kit/clock.ts';
import type { Closers } from '../kit/closers.ts';
import { IndexedSet } from '../kit/indexed-set.ts';
import { seededRandom } from '../kit/rng.ts';
import { Dispatcher } from '../listen/dispatch.ts';
import { Ports } from '../listen/ports.ts';
import { type Logger, givenLog, openLog } from '../observe/log.ts';
import { logFiles } from '../observe/log-targets.ts';
import { LoopLag } from '../observe/loop-lag.ts';
import { Meters } from '../observe/meters.ts';
import { RetryBudget } from '../wire/request-body.ts';

export type Base = ReturnType<typeof startBase>;

/** What every part of a router uses: options, log, time, counters, ports that are not open yet. */
export function startBase(config: Config, givenLogger: Logger | undefined, closers: Closers) {
  const live = new LiveConfig(config);
  const logging =
    givenLogger === undefined ? openLog(config.logLevel, logFiles(config), config.logFormat) : givenLog(givenLogger);
  closers.add(() => logging.close());
  const log = logging.logger;
  for (const line of withoutEffect(config)) log.warn(line);
  if (config.dataDir !== undefined) {
    const { otherPid, unmark } = markFolder(config.dataDir);
    closers.add(unmark);
    if (otherPid !== null) log.info(`another router (pid ${otherPid}) uses --data-dir ${config.dataDir}, too`);
  }
  const clock: CoarseClock = { nowMs: performance.now() };
  const retryBudget = new RetryBudget(config.retryBufferBytes);
  const loopLag = new LoopLag();
  closers.add(() => loopLag.close());
  const pace = config.streamCoalesceMs === 0 ? null : new ReadPace(config.streamCoalesceMs);
  closers.add(() => pace?.close());
  return {
    config,
    live,
    logging,
    log,
    clock,
    random: seededRandom(Math.floor(Math.random() * 2 ** 32)),
    retryBudget,
    meters: new Meters(),
    loopLag,
    pace,
    ports: new Ports(live, clock, retryBudget),
    /** Requests in flight. */
    inFlight: new IndexedSet<Exchange>(),
    dispatcher: new Dispatcher(retryBudget),
    /** Set when discovery starts, after the ports are open. */
    found: { discovery: null as Discovery | null },
    closers,
  };
}
