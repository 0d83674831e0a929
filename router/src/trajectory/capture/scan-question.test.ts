import assert from 'node:assert/strict';
import { test } from 'node:test';
import { scanQuestion } from './scan-question.ts';

test('a request of AReaL, which says by an empty list that there is no image, is a usual one', () => {
  const json = '{"input_ids":[7,8],"image_data":[],"sampling_params":{"n":2},"lora_path":"x","stream":false}';
  const found = scanQuestion(Buffer.from(json))!;
  assert.deepEqual([[...found.ids], found.samples, found.model], [[7, 8], 2, 'x']);
});

test('what has images is another kind of request', () => {
  for (const more of ['"image_data":["x"]', '"image_data":"x"', '"audio_data":[1]', '"input_embeds":[]', '"text":[]']) {
    assert.equal(scanQuestion(Buffer.from(`{"input_ids":[7,8],${more}}`)), null, more);
  }
});
