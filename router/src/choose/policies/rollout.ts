import type { Candidate, Exchange } from '../../exchange.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Hold, Policy, PolicyContext } from '../policy.ts';
import { Cheapest } from '../rollout/cheapest.ts';
import { RolloutTracker } from '../rollout/tracker.ts';
import type { WorkerState } from '../rollout/worker-state.ts';
import { type Waiting, goesBefore, mustPause, roomTokens, waitingOf } from '../rollout/residency.ts';
import { type RolloutRequest, costAt, noCost } from '../rollout/request.ts';

const isAny = (): boolean => true;
/** Held requests are retried only when some worker has room for this much context. */
const LEAST_TOKENS = 1_000;
/**
 * For rollouts: places each request where it costs all requests the least time. If the open sessions need more context
 * than the fleet can hold, it holds some of them between turns until an engine has room, so that they do not evict each
 * other.
 *
 * It knows only what passes the router: prompts, lengths and times of responses, ends of sessions.
 */
export function rollout(context: PolicyContext): Policy {
  const { options, nowMs } = context;
  const tracker = new RolloutTracker(context);
  const { workload } = tracker;
  const maxWaitMs = options.residencyMaxWaitSecs * 1000;
  const terms = noCost();
  const cheapest = new Cheapest(tracker);

  const cost = (request: RolloutRequest, state: WorkerState, atMs = nowMs()): number =>
    costAt(state, request, tracker.cachedTokens(request, state), atMs, terms);

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
    const isOpen = (state: WorkerState): boolean => {
      if (state === session.home) return true;
      const shared = Math.min(session.first.tokens, tracker.cachedTokens(request, state));
      return request.promptTokens - shared <= roomTokens(state, workload.turnTokens);
    };
    return cheapest.find(request, workers, isOpen, nowMs());
  }

  /** Some worker has room for a little context. */
  function hasRoom(): boolean {
    let has = false;
    tracker.visitRoomy(LEAST_TOKENS, () => !(has = true));
    return has;
  }

  return {
    needs: 'prompt',
    knowsSession: (x) => tracker.knows(x.session),
    choose(x, workers): Placement | Hold {
      tracker.expire();
      const request = tracker.request(x);
      const worker =
        hasResidency() && mayWait(x, request)
          ? withRoom(request, workers)
          : cheapest.find(request, workers, isAny, nowMs());
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
      const { turns } = workload;
      if (!hasRoom()) return null;
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
    compared: () => cheapest.compared,
    costs: (_x, workers, into) => cheapest.costs(workers, into),
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
