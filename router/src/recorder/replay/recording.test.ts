import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { readRecording } from './recording.ts';

const turnOf = (id: string, times: object, request?: string) => ({
  id,
  parent: null,
  path: '/generate',
  worker: 'http://127.0.0.1:41001',
  sampled: [Number(id)],
  ...times,
  ...(request === undefined ? {} : { request }),
});

const stream = { started_at_ms: 1_000, ttft_ms: 20.125 };
const whole = { started_at_ms: 1_001, ttft_ms: null };

test('choices of a stream, which end at different times, are one call; so are those of a whole response', async (t) => {
  const turns = [
    // The first of several samples has the request for all.
    turnOf('1', { ...stream, generation_ms: 50 }, '{"stream":true}'),
    turnOf('2', { ...stream, generation_ms: 70 }),
    turnOf('3', { ...whole, generation_ms: 80 }, '{}'),
    turnOf('4', { ...whole, generation_ms: 80 }),
    turnOf('5', { ...whole, generation_ms: 81 }, '{}'),
    turnOf('6', { ...stream, ttft_ms: 20.25, generation_ms: 50 }, '{"stream":true}'),
  ];
  const file = join(temporaryFolder(t), 'out.jsonl');
  writeFileSync(file, turns.map((turn) => `${JSON.stringify({ session: 's', turns: [turn] })}\n`).join(''));
  const { calls, withoutRequest } = await readRecording(file);
  assert.equal(withoutRequest, 0);
  assert.deepEqual(
    calls.map(({ samples }) => samples.map(({ turn }) => turn)),
    [['1', '2'], ['6'], ['3', '4'], ['5']],
  );
});
