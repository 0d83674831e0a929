import type { Candidate, PlacedRequest } from '../../placed-request.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Hold, Policy, PolicyContext } from '../policy.ts';
import { Cheapest } from '../rollout/cheapest.ts';
import { RolloutTracker } from '../rollout/tracker.ts';
import type { WorkerState } from '../rollout/worker-state.ts';
import { mustPause, rankSecs, roomTokens } from '../rollout/residency.ts';
import { type RolloutRequest, costAt, noCost } from '../rollout/request.ts';

const isAny = (): boolean => true;
/** Held requests are retried only when some worker has room for this much context. */
const LEAST_TOKENS = 1_000;
/** At a worker that has the beginning of its prompt a held session may go before others that are this much older, in turns. */
const MOST_SHARED = 3;
/** Of the held turns so many are looked at for one whose prompt is cached. */
const MAX_LOOKED_AT = 128;

/**
 * For rollouts: places each request where it costs all requests the least time. If the open sessions need more context
 * than the fleet can hold, it holds some of them between turns until an engine has room, so that they do not evict each
 * other. A turn that was held for as long as is allowed is sent as a guest: its context may be evicted before the next.
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
  /** Turns that are held, and some whose clients have left. */
  const held = new Set<PlacedRequest>();

  const cost = (request: RolloutRequest, state: WorkerState, atMs = nowMs()): number =>
    costAt(state, request, tracker.cachedTokens(request, state), atMs, terms);

  /** Sessions are held only if clients signal session ends: otherwise the router never knows when room is free. */
  const hasResidency = (): boolean => maxWaitMs > 0 && workload.hasTurns && workload.hasEndSignals;

  /** Only rollouts are held: not requests without a session, nor those with a deadline. */
  const mayWait = (x: PlacedRequest, { session }: RolloutRequest): boolean =>
    session?.isProven === true && x.timeoutMs === null;

  /** Tokens of the session's first prompt that the worker has in its cache. */
  const sharedTokens = (request: RolloutRequest, state: WorkerState): number =>
    Math.min(request.prompt.tokens, tracker.cachedTokens(request, state));

  function isAnyHeld(): boolean {
    for (const x of held) {
      if (x.outcome === null) return true;
      held.delete(x);
    }
    return false;
  }

  function withRoom(request: RolloutRequest, workers: readonly Worker[]): Worker | null {
    const session = request.session!;
    const { home } = session;
    if (home !== null && !workers.includes(home.worker)) session.settle(null);
    else if (home !== null && mustPause(session, workload)) {
      session.settle(null);
      session.hasGivenWay = true;
    }
    if (session.home === null && !request.isNext && isAnyHeld()) {
      // It does not pass the held turns: `nextHeld` gives out what room there is.
      if (roomy(workers) !== null) context.retryHeld();
      return null;
    }
    const isOpen = (state: WorkerState): boolean =>
      state === session.home ||
      request.promptTokens - sharedTokens(request, state) <= roomTokens(state, workload.turnTokens);
    return cheapest.find(request, workers, isOpen, nowMs());
  }

  /** A worker with room for a little context. */
  function roomy(workers: readonly Worker[]): WorkerState | null {
    let found: WorkerState | null = null;
    tracker.visitRoomy(LEAST_TOKENS, workers, (state) => {
      found = state;
      return false;
    });
    return found;
  }

  return {
    needs: 'prompt',
    learnsFromAnswers: true,
    knowsSession: (x) => tracker.knows(x.session),
    choose(x, workers): Placement | Hold {
      tracker.expire();
      const request = tracker.request(x);
      request.isGuest = false;
      // Whatever it is held for now, its session is not idle.
      if (request.session !== null) request.session.waiting = x;
      held.delete(x);
      const home = x.cacheUse === 'nothing' ? tracker.homeOf(x.session) : null;
      if (home !== null && workers.includes(home)) return home.alone;
      if (hasResidency() && mayWait(x, request)) {
        const worker = withRoom(request, workers);
        request.isNext = false;
        if (worker !== null) return worker.alone;
        if (!x.isOverdue) {
          held.add(x);
          request.rankSecs = rankSecs(request.session!, workload);
          return { hold: 'kv_cache_full', maxMs: maxWaitMs };
        }
        request.isGuest = true;
      }
      const among = request.isGuest ? tracker.guests.workersFor(request, workers) : workers;
      return cheapest.find(request, among, isAny, nowMs())!.alone;
    },
    whyMoved(x, from, to) {
      const request = tracker.request(x);
      if (request.session?.hasGivenWay === true) return { reason: 'no_room' };
      if (request.session?.home?.worker !== from) return { reason: 'cache_lost' };
      const savedSecs = cost(request, tracker.workerState(from)) - cost(request, tracker.workerState(to));
      return { reason: 'cheaper', savedSecs: Math.max(0, savedSecs) };
    },
    begun: (x, worker) => tracker.begin(x, worker),
    ended: (x) => tracker.end(x),
    sessionEnded: (id) => tracker.endSession(id),
    homeOf: (id) => tracker.homeOf(id),
    flushed: (worker) => tracker.flush(worker),
    heldRank: (x) => tracker.request(x).rankSecs,
    nextHeld(inOrder, workers) {
      tracker.expire();
      const state = roomy(workers);
      if (state === null) return null;
      let next: PlacedRequest | null = null;
      let nextSecs = -Infinity;
      let looked = 0;
      const { turnSecs, turnTokens } = workload;
      for (const x of inOrder) {
        const request = tracker.request(x);
        if (request.rankSecs + turnSecs * MOST_SHARED <= nextSecs || ++looked > MAX_LOOKED_AT) break;
        // Asked now, it would be held again, and all others with it.
        if (x.tried.length > 0 && roomy(workers.filter((worker) => !x.tried.includes(worker))) === null) continue;
        // Sessions of one prompt go together: they need less of a cache.
        const isMate = request.group.placed.has(state);
        const shared = isMate ? Math.min(MOST_SHARED, sharedTokens(request, state) / turnTokens) : 0;
        const secs = request.rankSecs + turnSecs * shared;
        if (secs <= nextSecs) continue;
        nextSecs = secs;
        next = x;
      }
      if (next !== null) tracker.request(next).isNext = true;
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
    describe() {
      tracker.expire();
      return { ...tracker.describe(), holdsSessionsBack: hasResidency() };
    },
    close: () => tracker.close(),
  };
}
