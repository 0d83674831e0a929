import { deepEqual } from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { loadTokenizer } from './load-tokenizer.ts';

for (const choice of ['js', 'native'] as const) {
  test(`a file that pads texts, or cuts them, does neither here: ${choice}`, async (t) => {
    const json = {
      version: '1.0',
      truncation: { direction: 'Right', max_length: 4, strategy: 'LongestFirst', stride: 0 },
      padding: { strategy: { Fixed: 4 }, direction: 'Right', pad_id: 0, pad_type_id: 0, pad_token: 'a' },
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: null,
      post_processor: null,
      decoder: null,
      model: { type: 'BPE', vocab: { a: 0, b: 1 }, merges: [] },
    };
    const file = join(temporaryFolder(t), 'tokenizer.json');
    writeFileSync(file, JSON.stringify(json));
    const tokenizer = await loadTokenizer(file, choice);
    deepEqual(await tokenizer.encode('bb', true), [1, 1]);
    deepEqual(await tokenizer.encode('bbbbbb', true), [1, 1, 1, 1, 1, 1]);
  });
}
