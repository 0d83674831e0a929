import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { letterOfByte } from '../../../router/src/kit/byte-letters.ts';
import { firstWord, isSpecial, piece, vocabSize } from './tokenizer.ts';

/** ChatML as Jinja, as `chat-template.ts` renders it. */
const chatTemplate =
  '{% for message in messages %}' +
  "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}" +
  "{% if message['tool_calls'] %}{% for call in message['tool_calls'] %}" +
  "{{ '\\n<tool_call>\\n' + (call | tojson) + '\\n</tool_call>' }}{% endfor %}{% endif %}" +
  "{% if not (loop.last and continue_final_message) %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/**
 * Writes the simulated model's tokenizer in the format of a model's folder. A pattern that is a trie of all words finds
 * the longest match; each match is an entry of the vocabulary, so nothing is left to merge (`ignore_merges`, as in
 * Llama 3).
 */
export function writeTokenizer(folder: string): void {
  const vocab: Record<string, number> = {};
  for (let byte = 0; byte < 256; byte++) vocab[letterOfByte[byte]!] = byte;
  const words: string[] = [];
  for (let id = firstWord; id < vocabSize; id++) words.push(spell(piece(id)));
  const added = Array.from({ length: vocabSize }, (_, id) => id).filter(isSpecial);
  // The Rust library numbers added tokens that are not in the vocabulary itself, whatever id is given.
  for (const id of added) vocab[piece(id)] = id;
  for (const [i, word] of words.entries()) vocab[word] = firstWord + i;
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added.map((id) => ({
      id,
      content: piece(id),
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
        { type: 'Split', pattern: { Regex: `${patternOf(words)}|.` }, behavior: 'Isolated', invert: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: true,
      vocab,
      merges: [],
    },
  };
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    clean_up_tokenization_spaces: false,
    eos_token: '<|im_end|>',
    pad_token: '<|pad|>',
    chat_template: chatTemplate,
  };
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  writeFileSync(join(folder, 'tokenizer_config.json'), `${JSON.stringify(config, null, 2)}\n`);
}

const spell = (text: string): string => Array.from(Buffer.from(text), (byte) => letterOfByte[byte]!).join('');

interface Branch {
  isWord: boolean;
  readonly next: Map<string, Branch>;
}

/** A pattern for the longest of `words`: each continuation is optional and greedy where a word may end. */
function patternOf(words: readonly string[]): string {
  const root: Branch = { isWord: false, next: new Map() };
  for (const word of words) {
    let at = root;
    for (const letter of word) {
      let next = at.next.get(letter);
      if (next === undefined) at.next.set(letter, (next = { isWord: false, next: new Map() }));
      at = next;
    }
    at.isWord = true;
  }
  return write(root);
}

function write({ isWord, next }: Branch): string {
  const ways = [...next].map(([letter, branch]) => letter + write(branch));
  if (ways.length === 0) return '';
  return isWord ? `(?:${ways.join('|')})?` : ways.length === 1 ? ways[0]! : `(?:${ways.join('|')})`;
}
