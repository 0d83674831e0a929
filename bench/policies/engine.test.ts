import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultEngine, prefillTime, type EngineOptions } from './engine-options.ts';
import { Engine, type EngineHost } from './engine.ts';
import { EventQueue } from './event-queue.ts';
import { Job } from './job.ts';
import { TraceBuilder, type Segment } from './workload.ts';

/** An engine with a clock of its own. */
class Bench implements EngineHost {
  left(): void {}
  stayed(): void {}

  readonly engine: Engine;
  readonly finished: { id: number; at: number }[] = [];
  readonly #wakes = new EventQueue<number>();
  #now = 0;

  constructor(options: Partial<EngineOptions> = {}) {
    this.engine = new Engine(0, { ...defaultEngine, ...options }, this);
  }

  wakeAt(seconds: number, _engine: Engine, version: number): void {
    this.#wakes.push(seconds, version);
  }

  done(job: Job, now: number): void {
    this.finished.push({ id: job.id, at: now });
  }

  submit(job: Job, at: number): void {
    this.runUntil(at);
    this.#now = at;
    job.sentAt = at;
    this.engine.submit(job, at);
  }

  runUntil(end = Infinity): void {
    while (this.#wakes.size > 0 && this.#wakes.firstKey <= end) {
      this.#now = this.#wakes.firstKey;
      if (this.#wakes.pop() === this.engine.version) this.engine.onBoundary(this.#now);
      const overdrawn = this.engine.heldTokens - this.engine.options.kvTokens;
      assert.ok(overdrawn <= this.engine.runningCount, `${overdrawn} tokens overdrawn`);
    }
  }
}

const build = new TraceBuilder();
let ids = 0;

function job(prefix: readonly Segment[], outputTokens: number): Job {
  const id = ++ids;
  const session = build.session({ id: `s${id}`, group: 'g', prefix, startSeconds: 0 }, [[0, outputTokens, 0]]);
  return new Job(id, session, 0, 0);
}

function close(actual: number, expected: number): void {
  assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);
}

const { stepSeconds, sequenceSeconds, kvTokenSeconds } = defaultEngine;

test('a request alone takes its prefill and then one step per token', () => {
  const bench = new Bench();
  const request = job([build.segment('p', 1000)], 11);
  bench.submit(request, 0);
  bench.runUntil();
  const first = stepSeconds + prefillTime(defaultEngine, 1000, 0);
  close(request.firstTokenAt, first);
  let expected = first;
  for (let token = 1; token < 11; token++) {
    expected += stepSeconds + sequenceSeconds + kvTokenSeconds * (1000 + token);
  }
  close(bench.finished[0]!.at, expected);
  close(bench.engine.totals.busySeconds, expected);
});

test('a prompt larger than a step is prefilled in several', () => {
  const bench = new Bench();
  const request = job([build.segment('p', 10_000)], 1);
  bench.submit(request, 0);
  bench.runUntil();
  close(bench.finished[0]!.at, 2 * stepSeconds + prefillTime(defaultEngine, 10_000, 0));
});

test('a request that comes while others decode is admitted at the end of the step', () => {
  const bench = new Bench();
  bench.submit(job([build.segment('p', 100)], 1000), 0);
  const late = job([build.segment('q', 100)], 5);
  bench.submit(late, 1);
  bench.runUntil();
  // At most the rest of one step, and a step that has its prefill in it.
  assert.ok(late.firstTokenAt > 1 && late.firstTokenAt < 1 + 2 * (stepSeconds + 0.005), `${late.firstTokenAt}`);
  assert.deepEqual(
    bench.finished.map(({ id }) => id),
    [late.id, late.id - 1],
  );
});

test('a prompt held in cache costs its last token only', () => {
  const bench = new Bench();
  const prefix = [build.segment('p', 1600)];
  bench.submit(job(prefix, 10), 0);
  bench.submit(job(prefix, 10), 10);
  bench.runUntil();
  const { promptTokens, hitTokens, prefilledTokens } = bench.engine.totals;
  assert.deepEqual([promptTokens, hitTokens, prefilledTokens], [3200, 1599, 1601]);
});

test('when memory runs out the last request starts over, and all tokens are accounted for', () => {
  const bench = new Bench({ kvTokens: 4000 });
  const jobs = Array.from({ length: 6 }, (_, i) => job([build.segment(`p${i}`, 300)], 900));
  for (const [i, request] of jobs.entries()) bench.submit(request, i / 100);
  bench.runUntil();
  const { preemptions, promptTokens, hitTokens, prefilledTokens, recomputedTokens } = bench.engine.totals;
  assert.equal(bench.finished.length, 6);
  assert.ok(preemptions > 0 && recomputedTokens > 0);
  assert.equal(hitTokens + prefilledTokens, promptTokens + recomputedTokens);
  assert.equal(promptTokens, 300 * (6 + preemptions));
  assert.equal(bench.engine.usedTokens, 0);
});

test('a failure gives back every request, and the engine comes back empty', () => {
  const bench = new Bench({ maxSequences: 2 });
  const prefix = [build.segment('p', 1600)];
  const jobs = [job(prefix, 500), job(prefix, 500), job(prefix, 500)];
  for (const request of jobs) bench.submit(request, 0);
  bench.runUntil(1);
  assert.deepEqual([bench.engine.runningCount, bench.engine.waitingCount], [2, 1]);
  assert.deepEqual(bench.engine.fail(1), jobs);
  assert.deepEqual([bench.engine.runningCount, bench.engine.heldTokens], [0, 0]);
  for (const request of jobs) assert.equal(request.generated, 0);
  bench.submit(jobs[0]!, 2);
  bench.runUntil();
  assert.equal(bench.finished.length, 0, 'it is down');
  bench.engine.start(3);
  bench.runUntil();
  assert.equal(bench.finished.length, 1);
});

test('a paused engine finishes its step, keeps its requests, and has no cache when it goes on', () => {
  const bench = new Bench();
  const prefix = [build.segment('p', 1600)];
  bench.submit(job(prefix, 2), 0);
  bench.runUntil();
  bench.submit(job(prefix, 100), 5);
  bench.engine.pause();
  bench.runUntil(8);
  assert.equal(bench.finished.length, 1);
  assert.equal(bench.engine.runningCount, 1);
  bench.engine.resume(9);
  bench.runUntil();
  assert.equal(bench.finished.length, 2);
  bench.engine.pause();
  bench.engine.resume(20);
  assert.equal(bench.engine.heldTokens, 0);
});
