import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import fc from '../../../router/test/harness/fast-check.ts';
import { fromPlain } from '../../../router/src/recorder/thread/jinja/json.ts';
import { Template } from '../../../router/src/recorder/thread/jinja/template.ts';
import { loadTokenizer } from '../../../router/src/recorder/thread/tokens/load-tokenizer.ts';
import { renderChat } from './chat-template.ts';
import { writeTokenizer } from './tokenizer-files.ts';
import { decode, encode } from './tokenizer.ts';
import { words } from './words.ts';

const folder = mkdtempSync(join(tmpdir(), 'turnout-tokenizer-'));
after(() => rmSync(folder, { recursive: true }));
writeTokenizer(folder);

const text = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.string({ unit: 'binary' }).map((s) => s.toWellFormed()),
  fc
    .array(fc.constantFrom(...words, ' ', '\n', '  ', '<|im_end|>', '<think>', '<|im', 'é', '😀', '"x": 1'))
    .map((parts) => parts.join('')),
);

for (const kind of ['js', 'native'] as const) {
  test(`the written tokenizer.json has the ids of the simulated one (${kind})`, async () => {
    const tokenizer = await loadTokenizer(folder, kind);
    assert.equal(tokenizer.kind, kind);
    await fc.assert(
      fc.asyncProperty(text, async (s) => {
        const ids = await tokenizer.encode(s, true);
        assert.deepEqual(ids, encode(s));
        assert.equal(Buffer.concat(ids.map((id) => tokenizer.pieces.bytesOf(id)!)).toString(), s);
        if (ids.length > 0) assert.equal(await tokenizer.decode(ids), decode(ids));
      }),
      { numRuns: 300 },
    );
  });
}

test('what is no tokenizer is refused in words', async () => {
  const file = join(folder, 'other.json');
  for (const [text, words] of [
    ['{}', /other\.json is no tokenizer: it has no vocabulary/],
    ['{"model": {"vocab": null}}', /no vocabulary/],
    ['null', /no vocabulary/],
    ['x', /other\.json is no JSON/],
  ] as const) {
    writeFileSync(file, text);
    await assert.rejects(loadTokenizer(file), words, text);
  }
});

test('its chat template is that of the simulated engines', () => {
  const config = JSON.parse(readFileSync(join(folder, 'tokenizer_config.json'), 'utf8')) as { chat_template: string };
  const template = new Template(config.chat_template);
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hi\n' },
  ];
  for (const addGenerationPrompt of [true, false]) {
    for (const continueFinalMessage of addGenerationPrompt ? [false] : [true, false]) {
      assert.equal(
        template.render(
          new Map([
            ['messages', fromPlain(messages)],
            ['add_generation_prompt', addGenerationPrompt],
            ['continue_final_message', continueFinalMessage],
          ]),
        ),
        renderChat(messages, { addGenerationPrompt, continueFinalMessage }),
      );
    }
  }
});
