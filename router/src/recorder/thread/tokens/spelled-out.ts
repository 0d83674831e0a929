import type { PreTokenizer, TokenizerJson } from './pieces.ts';

/**
 * Where `@huggingface/tokenizers` (0.2.0, JavaScript) cuts a text otherwise than `tokenizers` (0.23.3, Rust), the tokenizer.json can say the same in
 * patterns that both read alike.
 */
export function spelledOut(json: TokenizerJson): TokenizerJson {
  const { pre_tokenizer: whole } = json;
  if (!whole) return json;
  return { ...json, pre_tokenizer: { type: 'Sequence', pretokenizers: stepsOf(whole) } };
}

/** GPT-2's pattern, that of `ByteLevel`. JavaScript's `\s` has U+FEFF, and not U+0085. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

function stepsOf(step: PreTokenizer): PreTokenizer[] {
  const { type, pattern } = step;
  if (type === 'Sequence') return (step.pretokenizers ?? []).flatMap(stepsOf);
  // Rust's digits are all numbers: ², Ⅷ and ½ too.
  if (type === 'Digits') return [splitBy(step.individual_digits === true ? String.raw`\p{N}` : String.raw`\p{N}+`)];
  // A space that it puts before the text comes before the pattern.
  if (type === 'ByteLevel' && step.use_regex !== false && step.add_prefix_space === false)
    return [splitBy(GPT2), { ...step, use_regex: false }];
  // The JavaScript package cuts at no `▁`; each begins a part.
  if (type === 'Metaspace' && step.split !== false) {
    const sign = step.replacement ?? '▁';
    return [{ ...step, split: false }, splitBy(`${sign}[^${sign}]*|[^${sign}]+`)];
  }
  if (type === 'Split' && pattern?.Regex !== undefined)
    return [{ ...step, pattern: { Regex: pattern.Regex.replaceAll(IN_ANY_CASE, eachInAnyCase) } }];
  return [step];
}

const splitBy = (Regex: string): PreTokenizer => ({
  type: 'Split',
  pattern: { Regex },
  behavior: 'Isolated',
  invert: false,
});

/** Letters in any case, such as `(?i:'s|'t)`. */
const IN_ANY_CASE = /\(\?i:([A-Za-z'|]*)\)/g;
/** Letters outside ASCII that are these in another case, which the JavaScript package does not know. */
const FOLDED: Readonly<Record<string, string>> = { s: '\u017F', k: '\u212A' };

const eachInAnyCase = (_: string, letters: string): string =>
  `(?:${letters.replaceAll(/[A-Za-z]/g, (letter) => {
    const lower = letter.toLowerCase();
    return `[${lower}${letter.toUpperCase()}${FOLDED[lower] ?? ''}]`;
  })})`;
