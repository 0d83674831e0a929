import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { History, historyFields, quantileOf } from './history.ts';
import { Meters, WorkerMeters } from './meters.ts';

const bounds = [1, 2, 4];

test('a quantile is interpolated within its bucket', () => {
  equal(quantileOf(bounds, new Float64Array([0, 10, 0, 0]), 0.5), 1.5);
  equal(quantileOf(bounds, new Float64Array([4, 0, 4, 0]), 0.75), 3);
  equal(quantileOf(bounds, new Float64Array([0, 0, 0, 5]), 0.5), 4);
  ok(Number.isNaN(quantileOf(bounds, new Float64Array(4), 0.5)));
});

test('a point has the rates since the point before', () => {
  const meters = new Meters();
  const worker = new WorkerMeters();
  meters.byWorker.set('http://a', worker);
  const history = new History({ meters, inFlight: () => 3, queued: () => 2, held: () => 1 });
  history.sweep(1_000);
  meters.outcomes.complete += 20;
  meters.outcomes.refused += 4;
  worker.outputTokens += 500;
  worker.promptTokens += 500;
  meters.tokenGap.observe(0.015);
  history.sweep(1_500);
  history.sweep(3_000);
  equal(history.count, 2);
  const [point] = history.since(1);
  const of = (field: (typeof historyFields)[number]): number => point![historyFields.indexOf(field)]!;
  deepEqual([of('finished'), of('failed'), of('output_tokens')], [12, 2, 250]);
  deepEqual([of('in_flight'), of('queued'), of('held')], [3, 2, 1]);
  ok(of('token_gap_p50') > 0.01 && of('token_gap_p50') < 0.02);
  ok(Number.isNaN(of('first_token_p50')));
  ok(Number.isNaN(of('cached_tokens')), 'not reported is not known');
  worker.cachedTokens = 40;
  worker.cacheablePromptTokens = 80;
  history.sweep(4_000);
  const [last] = history.since(2);
  deepEqual(
    [last![historyFields.indexOf('cached_tokens')], last![historyFields.indexOf('cacheable_prompt_tokens')]],
    [40, 80],
  );
});

test('fifteen minutes are kept', () => {
  const history = new History({ meters: new Meters(), inFlight: () => 0, queued: () => 0, held: () => 0 });
  for (let i = 1; i <= 1_000; i++) history.sweep(i * 1_000);
  equal(history.count, 1_000);
  equal(history.since(0).length, 900);
  equal(history.since(990).length, 10);
  equal(history.since(1_000).length, 0);
});
