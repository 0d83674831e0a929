import type { Candidate, Exchange } from '../../exchange.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Hold, Policy, PolicyContext } from '../policy.ts';
import { RolloutTracker } from '../rollout/tracker.ts';
import type { WorkerState } from '../rollout/worker-state.ts';
import { type Waiting, fits, goesBefore, mustPause, waitingOf } from '../rollout/residency.ts';
import { type RolloutRequest, costAt, noCost } from '../rollout/request.ts';

/** Held requests are retried only when some worker has room for this much context. */
const LEAST_TOKENS = 1_000;
/** Costs that differ by less count as equal: otherwise a prefix that all chats share would draw them to one worker. */
const SAME_SECS = 0.005;
/** A session moves only if the cost is less than this share of the cost of staying, because estimates are not exact. */
const MOVE_BELOW = 0.8;

/**
 * For rollouts: places each request where it costs all requests the least time. If the open sessions need more context
 * than the fleet can hold, it holds some of them between turns until an engine has room, so that they do not evict each
 * other.
 *
 * It knows only what passes the router: prompts, lengths and times of responses, ends of sessions.
 */
export function rollout(context: PolicyContext): Policy {
  const { fleet, options, nowMs } = context;
  const tracker = new RolloutTracker(context);
  const { workload } = tracker;
  const maxWaitMs = options.residencyMaxWaitSecs * 1000;
  const terms = noCost();
  let costs = new Float64Array(16);
  let start = 0;

  const cost = (request: RolloutRequest, state: WorkerState, atMs = nowMs()): number =>
    costAt(state, request, tracker.cachedTokens(request, state), atMs, terms);

  /** The cheapest worker that `isOpen`, or null. Workers of about equal cost are chosen in turn. */
  function cheapest(
    request: RolloutRequest,
    workers: readonly Worker[],
    isOpen: (state: WorkerState) => boolean,
  ): Worker | null {
    if (costs.length < workers.length) costs = new Float64Array(2 * workers.length);
    const atMs = nowMs();
    let least = Infinity;
    for (let i = 0; i < workers.length; i++) {
      const state = tracker.workerState(workers[i]!);
      costs[i] = isOpen(state)
        ? cost(request, state, atMs) * (state === request.session?.home ? MOVE_BELOW : 1)
        : Infinity;
      if (costs[i]! < least) least = costs[i]!;
    }
    if (least === Infinity) return null;
    let at = start % workers.length;
    while (costs[at]! > least + SAME_SECS) at = (at + 1) % workers.length;
    start = at + 1;
    return workers[at]!;
  }

  /** Sessions are held only if clients signal session ends: otherwise the router never knows when room is free. */
  const hasResidency = (): boolean => maxWaitMs > 0 && workload.hasTurns && workload.hasEndSignals;

  /** Only batch work is held: not requests without a session, nor those with a deadline. */
  const mayWait = (x: Exchange, request: RolloutRequest): boolean =>
    request.session?.isProven === true && !x.isOverdue && x.timeoutMs === 0;

  function withRoom(request: RolloutRequest, workers: readonly Worker[]): Worker | null {
    const session = request.session!;
    const { home } = session;
    if (home !== null && !workers.includes(home.worker)) session.settle(null);
    else if (home !== null && mustPause(session, workload.turns)) {
      request.hasGivenWay = true;
      session.settle(null);
    }
    return cheapest(request, workers, (state) => {
      if (state === session.home) return true;
      const shared = Math.min(session.first.tokens, tracker.cachedTokens(request, state));
      return fits(state, request.promptTokens - shared, workload.turnTokens);
    });
  }

  return {
    needs: 'prompt',
    knowsSession: (x) => tracker.knows(x.session),
    choose(x, workers): Placement | Hold {
      tracker.expire();
      const request = tracker.request(x);
      const worker =
        hasResidency() && mayWait(x, request) ? withRoom(request, workers) : cheapest(request, workers, () => true);
      return worker === null ? { hold: 'kv_cache_full', maxMs: maxWaitMs } : worker.alone;
    },
    whyMoved(x, from, to) {
      const request = tracker.request(x);
      if (request.hasGivenWay) return { reason: 'no_room' };
      if (request.session?.home?.worker !== from) return { reason: 'cache_lost' };
      const savedSecs = cost(request, tracker.workerState(from)) - cost(request, tracker.workerState(to));
      return { reason: 'cheaper', savedSecs: Math.max(0, savedSecs) };
    },
    begun: (x, worker) => tracker.begin(x, worker),
    ended: (x) => tracker.end(x),
    sessionEnded: (id) => tracker.endSession(id),
    homeOf: (id) => tracker.homeOf(id),
    flushed: (worker) => tracker.flush(worker),
    nextHeld(held) {
      const { turnTokens, turns } = workload;
      if (!fleet.eligible.some((worker) => fits(tracker.workerState(worker), LEAST_TOKENS, turnTokens))) return null;
      let next: Exchange | null = null;
      let first: Waiting | null = null;
      for (const x of held) {
        const waiting = waitingOf(tracker.request(x).session!, x.startMs, turns);
        if (first !== null && !goesBefore(waiting, first)) continue;
        first = waiting;
        next = x;
      }
      return next;
    },
    // As `choose` has left them.
    costs: (_x, workers, into) => into.set(costs.subarray(0, workers.length)),
    explain(x, workers): Candidate[] {
      const request = tracker.request(x);
      return workers.map((worker) => {
        const total = cost(request, tracker.workerState(worker));
        return { worker: worker.url, terms: { ...terms, total } };
      });
    },
    indexSize: () => tracker.indexSize,
    describe: () => ({ ...tracker.describe(), holdsSessionsBack: hasResidency() }),
    close: () => tracker.close(),
  };
}
