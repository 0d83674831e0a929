import type { Candidate, Exchange } from '../../exchange.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Hold, Policy, PolicyContext } from '../policy.ts';
import { Book } from '../rollout/book.ts';
import { costAt, noCost } from '../rollout/cost.ts';
import type { Lane } from '../rollout/lane.ts';
import { type Waiting, fits, goesBefore, mustPause, waitingOf } from '../rollout/residency.ts';
import type { Turn } from '../rollout/turn.ts';

/** For this much context there must be room before anybody who waits is asked. */
const LEAST_TOKENS = 1_000;
/** Costs that differ by less are the same: what every chat begins with must not draw them all to one worker. */
const SAME_SECS = 0.005;
/** A session moves only where it costs less than this share of staying: what is learned of costs is never that exact. */
const MOVE_BELOW = 0.8;

/**
 * For rollouts: places each exchange where it costs everybody the least time. When the open sessions want more context than the
 * fleet can hold, it lets some of them wait between turns until an engine has room, instead of having all evict each other.
 *
 * It sees only what passes the router: prompts, lengths and times of answers, ends of sessions.
 */
export function rollout(context: PolicyContext): Policy {
  const { fleet, options, nowMs } = context;
  const book = new Book(context);
  const { workload } = book;
  const maxWaitMs = options.residencyMaxWaitSecs * 1000;
  const terms = noCost();
  let costs = new Float64Array(16);
  let start = 0;

  const cost = (turn: Turn, lane: Lane): number =>
    costAt(lane, turn, book.cachedTokens(turn, lane), turn.group.placed.get(lane) ?? 0, nowMs(), terms);

  /** The cheapest of the workers that `isOpen`; null where none is. Those that cost about the same get their turns. */
  function cheapest(turn: Turn, workers: readonly Worker[], isOpen: (lane: Lane) => boolean): Worker | null {
    if (costs.length < workers.length) costs = new Float64Array(2 * workers.length);
    let least = Infinity;
    for (let i = 0; i < workers.length; i++) {
      const lane = book.lane(workers[i]!);
      costs[i] = isOpen(lane) ? cost(turn, lane) * (lane === turn.session?.home ? MOVE_BELOW : 1) : Infinity;
      if (costs[i]! < least) least = costs[i]!;
    }
    if (least === Infinity) return null;
    let at = start % workers.length;
    while (costs[at]! > least + SAME_SECS) at = (at + 1) % workers.length;
    start = at + 1;
    return workers[at]!;
  }

  /** Sessions wait for room only where their ends are told: otherwise room is never known to be free. */
  const hasResidency = (): boolean => maxWaitMs > 0 && workload.hasTurns && workload.hasEndSignals;

  /** Waiting is for batches: not for requests without a session, nor for those that must be answered in time. */
  const mayWait = (x: Exchange, turn: Turn): boolean => turn.session !== null && !x.isOverdue && x.timeoutMs === 0;

  function withRoom(turn: Turn, workers: readonly Worker[]): Worker | null {
    const session = turn.session!;
    const { home } = session;
    if (home !== null && !workers.includes(home.worker)) session.settle(null);
    else if (home !== null && mustPause(session, workload.turns)) {
      turn.hasGivenWay = true;
      session.settle(null);
    }
    return cheapest(turn, workers, (lane) => {
      if (lane === session.home) return true;
      const shared = Math.min(session.first.tokens, book.cachedTokens(turn, lane));
      return fits(lane, turn.promptTokens - shared, workload.turnTokens);
    });
  }

  return {
    needs: 'prompt',
    knowsSession: (x) => book.knows(x.session),
    choose(x, workers): Placement | Hold {
      book.expire();
      const turn = book.turn(x);
      const worker = hasResidency() && mayWait(x, turn) ? withRoom(turn, workers) : cheapest(turn, workers, () => true);
      return worker === null ? { hold: 'kv_cache_full', maxMs: maxWaitMs } : worker.alone;
    },
    whyMoved(x, from, to) {
      const turn = book.turn(x);
      if (turn.hasGivenWay) return { reason: 'no_room' };
      if (turn.session?.home?.worker !== from) return { reason: 'cache_lost' };
      const savedSecs = cost(turn, book.lane(from)) - cost(turn, book.lane(to));
      return { reason: 'cheaper', savedSecs: Math.max(0, savedSecs) };
    },
    begun: (x, worker) => book.begin(x, worker),
    ended: (x) => book.end(x),
    sessionEnded: (id) => book.endSession(id),
    homeOf: (id) => book.homeOf(id),
    flushed: (worker) => book.flush(worker),
    nextHeld(held) {
      const { turnTokens, turns } = workload;
      if (!fleet.eligible.some((worker) => fits(book.lane(worker), LEAST_TOKENS, turnTokens))) return null;
      let next: Exchange | null = null;
      let first: Waiting | null = null;
      for (const x of held) {
        const waiting = waitingOf(book.turn(x).session!, x.startMs, turns);
        if (first !== null && !goesBefore(waiting, first)) continue;
        first = waiting;
        next = x;
      }
      return next;
    },
    explain(x, workers): Candidate[] {
      const turn = book.turn(x);
      return workers.map((worker) => {
        const total = cost(turn, book.lane(worker));
        return { worker: worker.url, terms: { ...terms, total } };
      });
    },
    describe: () => ({ ...book.describe(), holdsSessionsBack: hasResidency() }),
    close: () => book.close(),
  };
}
