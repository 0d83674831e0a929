import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { FeedEvent, WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { concernsOf } from '../views/concerns.ts';
import { hitRateOf } from './rates.ts';
import { FeedState } from './state.ts';

const about = { version: '1', policies: ['rollout'], started_at: 0, swaps: false, captures: false };
const reset: FeedEvent = { reset: about, history_fields: ['at', 'finished', 'output_tokens'] };

const worker = (id: string, change: Partial<WorkerRow> = {}): WorkerRow =>
  ({
    id,
    url: `http://${id}`,
    role: 'regular',
    reasons: [],
    breaker: 'closed',
    stalled: false,
    engine: 'vllm',
    problem: null,
    swap: null,
    responses: 0,
    failures: 0,
    output_tokens: 0,
    prompt_tokens: 0,
    cached_tokens: null,
    cacheable_prompt_tokens: 0,
    token_gap_secs: null,
    first_token_secs: null,
    ...change,
  }) as WorkerRow;

const workers = (...set: WorkerRow[]): FeedEvent => ({ table: 'workers', set, gone: [] });

const tick = (number: number, change: Partial<Extract<FeedEvent, { tick: number }>> = {}): FeedEvent => ({
  tick: number,
  at: number * 1_000,
  totals: { sessions: 0, unlisted_sessions: 0, moves: {}, phases: {}, waits: [], feed: null },
  points: [[number * 1_000, number, null]],
  exchanges: [],
  dropped: 0,
  ...change,
});

function stateAfter(...events: readonly FeedEvent[]): FeedState {
  const state = new FeedState();
  for (const event of events) state.apply(event);
  return state;
}

test('rows are set and removed; a reset forgets them', () => {
  const state = stateAfter(reset, workers(worker('a'), worker('b')), tick(1));
  state.dropped = 3;
  state.apply({ table: 'workers', set: [worker('b', { in_flight: 3 })], gone: ['a'] });
  deepEqual([...state.workers.keys()], ['b']);
  equal(state.workers.get('b')!.in_flight, 3);
  state.apply(reset);
  equal(state.workers.size, 0);
  equal(state.dropped, 0, 'requests that are not in a list of the router of before');
  deepEqual(state.history('finished'), []);
});

test('the history has the last 900 points by field', () => {
  const state = stateAfter(reset, ...Array.from({ length: 1_000 }, (_, i) => tick(i)));
  equal(state.history('finished').length, 900);
  equal(state.newest('finished'), 999);
  equal(state.recent('finished'), 997);
  equal(state.recent('output_tokens'), null);
});

test('recent figures come from totals, also if the router began to count again', () => {
  const state = stateAfter(
    reset,
    workers(worker('a', { responses: 10, failures: 5, cacheable_prompt_tokens: 100, cached_tokens: 50 })),
    tick(1),
  );
  state.apply(workers(worker('a', { responses: 30, failures: 6, cacheable_prompt_tokens: 200, cached_tokens: 130 })));
  state.apply(tick(5));
  const { responsesPerSec, failures, hitRate } = state.rates.of('a');
  deepEqual([responsesPerSec, failures, hitRate], [5, 1, 0.8]);
  state.apply(workers(worker('a')));
  state.apply(tick(6));
  deepEqual(state.rates.of('a').responsesPerSec, 0);
  equal(state.rates.of('unknown').hitRate, null);
});

test('the hit rate is not known where engines report no cached tokens', () => {
  const state = stateAfter(reset, workers(worker('a', { prompt_tokens: 100 })), tick(1));
  state.apply(workers(worker('a', { prompt_tokens: 200 })));
  state.apply(tick(2));
  equal(state.rates.of('a').hitRate, null);
  // It reports them from now on: only of what it has reported since.
  state.apply(workers(worker('a', { prompt_tokens: 300, cacheable_prompt_tokens: 100, cached_tokens: 25 })));
  state.apply(tick(3));
  equal(state.rates.of('a').hitRate, 0.25);
});

test('no cache hit is a hit rate of 0, and none reported is no rate', () => {
  equal(hitRateOf(0, 100), 0);
  equal(hitRateOf(25, 100), 0.25);
  equal(hitRateOf(null, 100), null);
  equal(hitRateOf(0, 0), null);
  equal(hitRateOf(null, null), null);
});

test('nothing needs attention while all serve; then the worst comes first', () => {
  const fast = { token_gap_secs: 0.01 };
  const calm = stateAfter(reset, workers(worker('a', fast), worker('b', fast), worker('c', fast)), tick(1));
  deepEqual(concernsOf(calm), []);
  calm.apply(
    workers(worker('b', { reasons: ['unhealthy'], problem: 'ECONNREFUSED' }), worker('c', { reasons: ['draining'] })),
  );
  calm.apply(workers(worker('d', { token_gap_secs: 0.1 }), worker('e', fast)));
  calm.apply(
    tick(2, {
      totals: {
        sessions: 0,
        unlisted_sessions: 0,
        moves: {},
        phases: {},
        feed: null,
        waits: [
          {
            phase: 'held',
            reason: 'kv_cache_full',
            count: 7,
            waits_for: 'KV cache space: …; sent anyway after 60 s',
            oldest: { id: 'r1', session: 's1', turn: 5, waiting_secs: 31.4, limit_secs: 60 },
          },
          {
            phase: 'queued',
            reason: 'rate',
            count: 1,
            waits_for: 'the rate limit: …',
            oldest: { id: 'r2', session: null, turn: null, waiting_secs: 2, limit_secs: 60 },
          },
        ],
      },
    }),
  );
  deepEqual(
    concernsOf(calm).map(({ text, detail, to }) => [text, detail, to[1]]),
    [
      ['1 worker unhealthy', 'ECONNREFUSED', 'http://b'],
      ['1 worker draining', '', 'http://c'],
      [
        '7 requests held',
        'oldest for 31 s: session s1, turn 5. It waits for KV cache space: …; sent anyway after 60 s',
        's1',
      ],
      ['1 request queued', 'oldest for 2.00 s: request r2. It waits for the rate limit: …', undefined],
      ['d is slow', '100 ms between tokens; the median of the fleet is 10 ms', 'http://d'],
    ],
  );
});
