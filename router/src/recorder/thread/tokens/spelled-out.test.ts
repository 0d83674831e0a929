import { deepEqual } from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { often } from '../../../../test/harness/often.ts';
import { letterOfByte } from '../../../kit/byte-letters.ts';
import { seededRandom } from '../../../kit/rng.ts';
import { loadTokenizer } from './load-tokenizer.ts';
import type { PreTokenizer } from './pieces.ts';

/** What JavaScript and Rust take for different kinds of letters, or spaces, and what patterns have names for. */
const PARTS =
  "the The THE I'm I'M don't DON'T it'\u017F we'LL he'd x'\u212A 's 'S 'T 're '\u2019s \u00E9 e\u0301 A\u030A \u00DF \u1E9E \u0130 \u0131 \uFB01 \uAC00 \u4E2D\u6587 " +
  '\u3072\u3089 \u30AB\u30BF \uFF8A \u0928\u092E \u0E44\u0E17\u0E22 \u05E2\u05D1 \u0627\u0644 \u01C5 \u02B0 \u00AA 123 1234567 \u0663\u0664 \u2167 \u00BD \u00B2 \u2460 \u{1D7D9} \u{1F600} \u{1F1E9} ' +
  '! ?! ... \u2014 $ \u20AC ^ ` | ~ < == ( ) [ ] { } / \\ _ - # @ % : ; , . " + a b aB ABc \u0301 \u20DD \u2581 \u2581\u2581 \uE000 \uFFFF \u0000';
const SPACES = ' |  |\n|\r|\r\n|\t|\v|\f|\x1C|\x85|\xA0|\u1680|\u180E|\u2003|\u200B|\u2028|\u3000|\uFEFF';

const random = seededRandom(3);
const oneOf = (list: readonly string[]): string => list[Math.floor(random() * list.length)]!;
const parts = PARTS.split(' ');
const spaces = SPACES.split('|');
const texts = Array.from({ length: often(1_000, 50_000) }, () =>
  Array.from({ length: 1 + Math.floor(random() * 12) }, () => oneOf(random() < 0.4 ? spaces : parts)).join(''),
);

/** Every pair of neighbours is a token: where a text is cut between two, they are not joined. */
function bpeOf(spelled: readonly string[]): object {
  const vocab = new Map<string, number>();
  const merges = new Map<string, [string, string]>();
  const add = (token: string): unknown => vocab.has(token) || vocab.set(token, vocab.size);
  for (const text of spelled) for (const letter of text) add(letter);
  for (const letters of spelled.map((text) => [...text])) {
    for (let i = 1; i < letters.length; i++) merges.set(letters[i - 1]! + letters[i]!, [letters[i - 1]!, letters[i]!]);
  }
  for (const token of merges.keys()) add(token);
  return { type: 'BPE', vocab: Object.fromEntries(vocab), merges: [...merges.values()] };
}

const split = (Regex: string): PreTokenizer => ({
  type: 'Split',
  pattern: { Regex },
  behavior: 'Isolated',
  invert: false,
});
const letters = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
const gpt2 = { ...letters, use_regex: true };
const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const words = String.raw`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const cased = String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+${contractions}?`;
const metaspace = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first' };

const ofBytes: Readonly<Record<string, readonly PreTokenizer[]>> = {
  'GPT-2, GPT-NeoX, OLMo': [gpt2],
  'StarCoder 2': [{ type: 'Digits', individual_digits: true }, gpt2],
  Falcon: [
    { type: 'Punctuation', behavior: 'Contiguous' },
    gpt2,
    { type: 'Digits', individual_digits: false },
    split('[0-9][0-9][0-9]'),
  ],
  'Llama 3, Qwen 3, GLM 4': [split(`${contractions}|${words}`), letters],
  'gpt-oss': [split(`${cased}|${words}`), letters],
  'DeepSeek V3': [
    split(String.raw`\p{N}{1,3}`),
    split('[一-龥぀-ゟ゠-ヿ]+'),
    split(
      String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_\x60{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
    ),
    letters,
  ],
};
const tokenizers: Record<string, object> = {};
const spaced = texts.map((text) => `▁${text.replaceAll(' ', '▁')}`);
for (const [name, isSplit] of [
  ['Llama 2', false],
  ['files without "split"', undefined],
] as const)
  tokenizers[name] = { pre_tokenizer: { ...metaspace, split: isSplit }, model: bpeOf(spaced) };
const spelled = texts.map((text) => [...Buffer.from(text)].map((byte) => letterOfByte[byte]!).join(''));
for (const [name, pretokenizers] of Object.entries(ofBytes)) {
  tokenizers[name] = { pre_tokenizer: { type: 'Sequence', pretokenizers }, model: bpeOf(spelled) };
}

for (const [name, json] of Object.entries(tokenizers)) {
  test(`the JavaScript package cuts texts where the native one does: ${name}`, async (t) => {
    const file = join(temporaryFolder(t), 'tokenizer.json');
    writeFileSync(
      file,
      JSON.stringify({
        version: '1.0',
        added_tokens: [],
        normalizer: null,
        post_processor: null,
        decoder: null,
        ...json,
      }),
    );
    const [js, native] = [await loadTokenizer(file, 'js'), await loadTokenizer(file, 'native')];
    for (const text of texts) deepEqual(await js.encode(text, false), await native.encode(text, false), escape(text));
  });
}

const escape = (text: string): string =>
  JSON.stringify(text).replaceAll(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
