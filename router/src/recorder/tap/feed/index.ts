import { hostname } from 'node:os';
import type { Exchange } from '../../../exchange.ts';
import type { Worker } from '../../../fleet/worker.ts';
import type { PluginDefinition } from '../../../plugins/definition.ts';
import type { FeedOptions } from '../../shared/feed.ts';
import type { FeedStats } from '../../../observe/trainer-feed.ts';
import type { Recorder } from '../recorder.ts';
import { FeedGate, type GateParts } from './gate.ts';
import { feedMetrics } from './metrics.ts';
import { addMetric } from '../metrics.ts';
import { feedOptions } from './options.ts';
import { addFeedRoutes } from './routes.ts';

/** How often deadlines and leases are looked at. */
const TICK_MS = 200;
/** After so long without a look the process was stopped. */
const STOPPED_MS = 5 * TICK_MS;
/** A request that waits for room for its group waits at most so long. */
const MAX_HOLD_MS = 3_600_000;

const PAST =
  'a session goes on whose group is over or does not wait for it: its turns are stored, and not delivered. Names of sessions must not repeat';

/** Groups of finished sessions for a trainer: see docs/guides/feed.md. */
export const feed = (
  recorder: Recorder | null,
  requests: Pick<GateParts, 'inFlight' | 'isDraining' | 'endSession'>,
): PluginDefinition<FeedOptions> => ({
  name: 'feed',
  options: feedOptions,
  async create(options, { config, metrics, log }) {
    if (recorder === null) {
      throw new Error('it needs what records tokens: --tokenizer-path with --plugin radix-tree or --capture-chat');
    }
    const { thread, sessionHeaders } = recorder;
    const router = `${hostname()}:${config.port === 0 ? process.pid : config.port}`;
    let past = 0;
    const onPast = (session: string): void => {
      past++;
      if ((past & (past - 1)) === 0) log.warn({ session, sessions: past }, PAST);
    };
    const gate = new FeedGate({ thread, options, sessionHeaders, onPast, ...requests });
    let isAgain = false;
    await recorder.restarts.prepare(async () => {
      gate.forget();
      const damaged = await thread.ask('feedBegin', { options, router, isAgain });
      if (damaged.length > 0)
        log.error({ records: damaged }, 'damaged records of the feed are removed: their groups have failed');
    });
    isAgain = true;
    let stats: FeedStats = await thread.ask('feedStats', null);
    let isTicking = false;
    let isFailing = false;
    let isMoved = false;
    const tick = async (): Promise<void> => {
      if (requests.isDraining()) gate.drain();
      if (isTicking || recorder.restarts.isAway) return;
      isTicking = true;
      try {
        const { cancelled, ended, failures, full, stats: now } = await thread.ask('feedTick', null);
        stats = now;
        for (const { isDropped, ...failure } of failures) {
          if (isDropped) log.error(failure, 'a group of the feed can be read or sent at no try: it is dropped');
          else log.warn(failure, 'a group of the feed was not read or sent: it is tried again');
        }
        gate.stop(cancelled);
        gate.ended(ended);
        gate.roomFor(new Set(full));
        isFailing = false;
        isMoved = false;
      } catch (error) {
        const owner = await thread.ask('feedTakenBy', null).catch(() => null);
        if (owner !== null) {
          gate.forget();
          gate.drain();
          if (!isMoved)
            log.error({ owner }, 'another router has taken the feed over: this one refuses all calls of it');
          isMoved = true;
          return;
        }
        const level = isFailing ? 'debug' : 'warn';
        log[level]({ error: (error as Error).message }, 'the feed was not looked at: it is tried again');
        isFailing = true;
      } finally {
        isTicking = false;
      }
    };
    recorder.feed = { stats: () => stats, rows: () => thread.ask('feedRows', null) };
    let lookedMs = performance.now();
    let hasWaited = false;
    const timer = setInterval(() => {
      const nowMs = performance.now();
      // What came during a stop of the process (ends, rewards, renewals of leases) is on its way to the recorder thread by the next look.
      hasWaited = !hasWaited && nowMs - lookedMs > STOPPED_MS;
      lookedMs = nowMs;
      if (!hasWaited) void tick();
    }, TICK_MS).unref();
    const { open, ready, leased } = stats;
    log.info({ feed: options.name, open, ready, leased }, 'groups of the feed');
    for (const { read, ...metric } of feedMetrics) addMetric(metrics, metric, () => read({ stats, held: gate.held }));
    return {
      appliesTo: (x: Exchange) => gate.appliesTo(x),
      admit: (x: Exchange) => gate.admit(x),
      choose: (x: Exchange, workers: readonly Worker[]) => {
        gate.chosen(x);
        return workers;
      },
      finished: (x: Exchange) => gate.finished(x),
      routes: ({ forClients }) => addFeedRoutes(forClients, thread),
      timeoutMs: MAX_HOLD_MS,
      close: () => {
        clearInterval(timer);
        gate.close();
        // A thread that has ended, or a store that is away, ends the feed too.
        return thread.ask('feedStop', null).catch(() => {});
      },
    };
  },
});
