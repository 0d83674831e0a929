import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pauses } from './pauses.ts';

function startPauses() {
  const clock = { nowMs: 0 };
  const pauses = new Pauses(
    () => 600_000,
    () => clock.nowMs,
  );
  const call = (path: string, isDone = true, tags?: string[]): void => pauses.begin('e', path, tags)(isDone);
  return { clock, pauses, call, isPaused: () => pauses.isPaused('e') };
}

test('a pause holds until a control starts the same again, or for its longest time', () => {
  const { clock, call, isPaused } = startPauses();
  for (const [stop, start] of [
    ['/pause_generation', '/continue_generation'],
    ['/areal_pause_generation', '/areal_continue_generation'],
    ['/pause', '/resume'],
    ['/sleep', '/wake_up'],
    ['/release_memory_occupation', '/resume_memory_occupation'],
    ['/release_kv_cache_memory', '/wake_up'],
  ] as const) {
    call(stop);
    assert.equal(isPaused(), true, stop);
    call(start, false);
    assert.equal(isPaused(), true, `${start} failed`);
    call(start);
    assert.equal(isPaused(), false, start);
  }
  call('/pause');
  clock.nowMs = 599_999;
  assert.equal(isPaused(), true);
  clock.nowMs = 600_000;
  assert.equal(isPaused(), false);
});

test('a failed pause does not count, and waking memory leaves generation paused', () => {
  const { call, isPaused } = startPauses();
  call('/pause', false);
  assert.equal(isPaused(), false);
  call('/pause_generation');
  call('/resume_memory_occupation');
  assert.equal(isPaused(), true);
});

test('an engine whose weights are resumed stays paused until its KV cache is, too', () => {
  const { call, isPaused } = startPauses();
  for (const [stop, start] of [
    ['/release_memory_occupation', '/resume_memory_occupation'],
    ['/sleep', '/wake_up'],
  ] as const) {
    for (const [first, then] of [
      ['weights', 'kv_cache'],
      ['kv_cache', 'weights'],
    ] as const) {
      call(stop);
      call(start, true, [first]);
      assert.equal(isPaused(), true, `${start} ${first}`);
      call(start, true, [then]);
      assert.equal(isPaused(), false, `${start} ${then}`);
    }
    call(stop, true, ['kv_cache']);
    call(start, true, ['weights']);
    assert.equal(isPaused(), true, stop);
    call(start, true, ['kv_cache', 'cuda_graph']);
    assert.equal(isPaused(), false, 'its weights were never released');
  }
  call('/release_kv_cache_memory');
  call('/wake_up', true, ['kv_cache']);
  assert.equal(isPaused(), false);
});

test('an engine that has not answered a control yet is occupied with it, for the longest pause', () => {
  const { clock, pauses, isPaused } = startPauses();
  const end = pauses.begin('e', '/update_weights_from_disk');
  assert.equal(isPaused(), true);
  assert.equal(pauses.isPaused('another'), false);
  clock.nowMs = 600_000;
  assert.equal(isPaused(), false);
  clock.nowMs = 0;
  end(true);
  assert.equal(isPaused(), false);
});

test('another process, or a word of its own, ends what is known of a pause', () => {
  const { pauses, call, isPaused } = startPauses();
  call('/sleep');
  pauses.forget('e');
  assert.equal(isPaused(), false);
});
