import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../router/test/harness/fast-check.ts';
import { resolveSimOptions, type SimOptions } from '../sim-options.ts';
import { Sampler } from './sampler.ts';
import { Scheduler } from './scheduler.ts';
import { Sequence, type Sampling } from './sequence.ts';

const plain: Sampling = {
  maxTokens: 16,
  minTokens: 0,
  temperature: 0,
  topK: 0,
  sampleSeed: 0,
  ignoreEos: true,
  stopTexts: [],
  stopIds: [],
  showStop: false,
  showSpecial: false,
};

function scheduler(given: Partial<SimOptions> = {}): Scheduler {
  const options = resolveSimOptions(given);
  return new Scheduler(options, new Sampler(options.seed, options.meanOutputTokens, false));
}

const tokens = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => (first + i * 7) % 1000);

function runAll(machine: Scheduler): number {
  let nowMs = 0;
  for (let step = machine.step(nowMs); step; step = machine.step(nowMs)) nowMs += step.durationMs;
  return nowMs;
}

/** What the sequence generates with the engine to itself. */
function alone(prompt: number[], sampling: Sampling): number[] {
  const machine = scheduler();
  const sequence = new Sequence('alone', prompt, sampling);
  machine.submit(sequence, 0);
  runAll(machine);
  return sequence.output;
}

function checkMemory(machine: Scheduler, blockTokens: number): void {
  const holds = new Map<number, number>();
  for (const { blocks, computed } of machine.running) {
    assert.ok(computed <= blocks.length * blockTokens);
    assert.equal(new Set(blocks).size, blocks.length);
    for (const block of blocks) holds.set(block, (holds.get(block) ?? 0) + 1);
  }
  for (const { blocks } of machine.waiting) assert.equal(blocks.length, 0);
  for (const [block, count] of holds) assert.equal(machine.cache.holders(block), count);
  assert.equal(machine.cache.freeCount, machine.cache.blockCount - holds.size);
}

test('any load, any memory: everything ends, with the tokens it would have alone, within the limits', () => {
  const request = fc.record({
    prompt: fc.tuple(fc.integer({ min: 1, max: 90 }), fc.nat(3)).map(([count, first]) => tokens(count, first)),
    maxTokens: fc.integer({ min: 0, max: 40 }),
    ignoreEos: fc.boolean(),
    temperature: fc.constantFrom(0, 1),
    sampleSeed: fc.nat(3),
    atStep: fc.nat(30),
    abortAtStep: fc.option(fc.nat(60)),
    retractAtStep: fc.option(fc.nat(60)),
  });
  const engine = fc.record({
    // The longest request has 130 tokens, and the memory is whole blocks: below 9 blocks of 16 it could never run.
    kvTokens: fc.integer({ min: 144, max: 400 }),
    blockTokens: fc.constantFrom(1, 4, 16),
    maxRunning: fc.integer({ min: 1, max: 8 }),
    maxStepTokens: fc.integer({ min: 1, max: 200 }),
    meanOutputTokens: fc.constant(20),
  });
  fc.assert(
    fc.property(engine, fc.array(request, { maxLength: 15 }), (options, requests) => {
      const machine = scheduler(options);
      assert.ok(machine.maxSequenceTokens >= 130, 'the engine refuses longer requests');
      const all = requests.map((given, i) => ({
        ...given,
        sequence: new Sequence(`s${i}`, given.prompt, { ...plain, ...given }),
        isAborted: false,
      }));
      let nowMs = 0;
      for (let i = 0; i < 5000; i += 1) {
        for (const one of all) {
          if (one.atStep === i) machine.submit(one.sequence, nowMs);
          if (one.abortAtStep === i && one.atStep <= i && !one.sequence.finish) {
            machine.remove(one.sequence);
            one.isAborted = true;
          }
          if (one.retractAtStep === i) machine.retractAll();
        }
        const step = machine.step(nowMs);
        checkMemory(machine, options.blockTokens);
        assert.ok(machine.running.length <= options.maxRunning);
        if (step) {
          assert.ok(step.durationMs >= 7);
          nowMs += step.durationMs;
        } else if (i > 60) break;
      }
      assert.ok(machine.isIdle, 'something never ended');
      assert.equal(machine.cache.freeCount, machine.cache.blockCount);
      for (const { sequence, isAborted, prompt } of all) {
        if (!isAborted) assert.ok(sequence.finish);
        const reference = machineAlone(prompt, sequence.sampling, options.meanOutputTokens);
        assert.deepEqual(sequence.output, reference.slice(0, sequence.output.length));
        if (!isAborted) assert.equal(sequence.output.length, reference.length);
      }
    }),
    { numRuns: 150 },
  );
});

function machineAlone(prompt: number[], sampling: Sampling, meanOutputTokens: number): number[] {
  const machine = scheduler({ meanOutputTokens });
  const sequence = new Sequence('alone', prompt, sampling);
  machine.submit(sequence, 0);
  runAll(machine);
  return sequence.output;
}

test('a generation resumed from its own tokens goes on as if it had not been cut', () => {
  const prompt = tokens(50);
  const whole = alone(prompt, { ...plain, maxTokens: 200, ignoreEos: false });
  for (const cut of [1, 7, 19]) {
    const rest = alone([...prompt, ...whole.slice(0, cut)], {
      ...plain,
      maxTokens: 200 - cut,
      ignoreEos: false,
    });
    assert.deepEqual([...whole.slice(0, cut), ...rest], whole);
  }
});

test('the second turn hits what the first left, output included, in whole blocks', () => {
  const machine = scheduler();
  const first = new Sequence('1', tokens(100), { ...plain, maxTokens: 30 });
  machine.submit(first, 0);
  runAll(machine);
  const second = new Sequence('2', [...first.prompt, ...first.output, 1, 2, 3], plain);
  machine.submit(second, 0);
  runAll(machine);
  // 129 tokens have KV (the last one generated was never read): 8 blocks of 16.
  assert.equal(second.cachedTokens, 128);
});

test('samples of one prompt that arrive together prefill it once', () => {
  const machine = scheduler();
  const group = Array.from({ length: 8 }, (_, i) => new Sequence(`${i}`, tokens(320), plain));
  for (const sequence of group) machine.submit(sequence, 0);
  runAll(machine);
  assert.deepEqual(
    group.map((sequence) => sequence.cachedTokens),
    [0, ...Array.from({ length: 7 }, () => 304)],
  );
});

test('another namespace shares nothing', () => {
  const machine = scheduler();
  for (const [i, salt] of ['a', 'b', 'a'].entries()) {
    const sequence = new Sequence(`${i}`, tokens(64), plain, salt);
    machine.submit(sequence, 0);
    runAll(machine);
    assert.equal(sequence.cachedTokens, i === 2 ? 48 : 0);
  }
});

test('memory pressure preempts the latest arrival and costs time', () => {
  const time = (kvTokens: number): [number, number, number[]] => {
    const machine = scheduler({ kvTokens });
    const all = Array.from(
      { length: 6 },
      (_, i) => new Sequence(`${i}`, tokens(64, i * 11), { ...plain, maxTokens: 200 }),
    );
    for (const sequence of all) machine.submit(sequence, 0);
    return [runAll(machine), machine.preemptions, all.map((sequence) => sequence.preemptions)];
  };
  const [roomyMs, none] = time(100_000);
  const [tightMs, some, each] = time(640);
  assert.equal(none, 0);
  assert.ok(some > 0);
  assert.equal(each[0], 0);
  assert.ok(tightMs > roomyMs * 1.5);
});

test('step times are those of the reference model', () => {
  const machine = scheduler();
  machine.submit(new Sequence('a', tokens(1000), { ...plain, maxTokens: 3 }), 0);
  // 7 ms + 1,000 x 31 us + 1,000 x 500 x 1 ns
  assert.ok(Math.abs(machine.step(0)!.durationMs - 38.5) < 1e-9);
  // 7 ms + 30 us + 1,001 x 24 ns
  assert.ok(Math.abs(machine.step(0)!.durationMs - 7.054024) < 1e-9);
});

test('256 sequences of 1k context decode at about 12k tokens/s, prefill runs at about 30k', () => {
  const machine = scheduler();
  for (let i = 0; i < 256; i += 1) {
    machine.submit(new Sequence(`${i}`, tokens(1000, i * 3), { ...plain, maxTokens: 200 }), 0);
  }
  let prefillMs = 0;
  while (machine.waiting.length > 0 || machine.running.some((sequence) => sequence.output.length === 0)) {
    prefillMs += machine.step(0)!.durationMs;
  }
  const rate = 256 / (machine.step(0)!.durationMs / 1000);
  assert.ok(rate > 11_000 && rate < 15_000, `${rate} tokens/s`);
  const prefillRate = (machine.promptTokens - machine.cachedTokens) / (prefillMs / 1000);
  assert.ok(prefillRate > 20_000 && prefillRate < 35_000, `${prefillRate} tokens/s`);
});

test('holding steps nothing, draining admits no newcomer', () => {
  const machine = scheduler();
  const [first, second] = [new Sequence('1', tokens(20), plain), new Sequence('2', tokens(20), plain)];
  machine.submit(first, 0);
  machine.step(0);
  machine.mode = 'hold';
  assert.equal(machine.step(0), null);
  machine.mode = 'drain';
  machine.submit(second, 0);
  runAll(machine);
  assert.ok(first.finish && !second.finish);
  machine.resume();
  runAll(machine);
  assert.ok(second.finish);
});
