import { NoAnswer } from '../../../engines/ask.ts';
import { generate, promptIdsRequest } from '../../../engines/dialects/generate.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { objectIn } from '../../../kit/json-object.ts';

/** An engine that can be asked. */
type Asked = Pick<Worker, 'url' | 'post'>;

/** Texts in which tokenizers that look alike differ: pre-tokenizers, normalisers, digits, spaces, letters of several bytes. */
export const probeTexts: readonly string[] = [
  'Hello, how are you?',
  " I'll say we've DON'T they'RE it's",
  '12345 678 3.14159 1,000,000 2024-06-01 0x1F',
  'a  b   c    d\t\te \n\n f\r\n  g \n',
  'def f(x):\n    return {"a": [x**2, None], \'b\': "\\n"}\n\n\n',
  'caf\u00e9 cafe\u0301 na\u00efve \u212b \ufb01n \u00bd',
  '日本語のテキストと、한국어 그리고 中文。',
  'Привет, мир! Γειά σου مرحبا שלום',
  '👩‍👩‍👧‍👦 🏳️‍🌈 😀😀 \u200b\u00a0\u3000.',
  'https://example.com/a_b-c?d=e&f=%20#g',
  '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>\n<think>\n\n</think>',
  '!!!...---___***   ###\n```ts\nconst x = 1;\n```',
];

/** What an engine makes of our texts. */
export type Verdict =
  | { readonly kind: 'same' }
  /** It can't be asked, for good: it has nothing to ask. */
  | { readonly kind: 'unknown'; readonly reason: string }
  /** It could not be asked now. */
  | { readonly kind: 'later'; readonly reason: string; readonly isSilent: boolean }
  | {
      readonly kind: 'differs';
      readonly text: string;
      readonly ours: readonly number[];
      readonly theirs: readonly number[];
    };

const TIMEOUT_MS = 2_000;

type Ids = readonly number[];

/** Asks an engine for the ids of the texts and compares. */
export async function probe(worker: Asked, encode: (text: string) => Promise<Ids>): Promise<Verdict> {
  let ask: (text: string) => Promise<Ids | null> = (text) => tokenize(worker, text);
  for (const [i, text] of probeTexts.entries()) {
    let theirs: Ids | null;
    try {
      theirs = await ask(text);
      // Releases without that endpoint tell the ids of a prompt beside its logprobs.
      if (theirs === null && i === 0) {
        ask = (each) => promptIds(worker, each);
        theirs = await ask(text);
      }
    } catch (error) {
      return { kind: 'later', reason: (error as Error).message, isSilent: error instanceof NoAnswer };
    }
    if (theirs === null) {
      return {
        kind: 'unknown',
        reason: 'neither its /tokenize nor its /generate answers with the token ids of a text',
      };
    }
    const ours = await encode(text);
    if (ours.length !== theirs.length || ours.some((id, at) => id !== theirs[at])) {
      return { kind: 'differs', text, ours, theirs };
    }
  }
  return { kind: 'same' };
}

/** vLLM and SGLang (0.5) take the same words. */
const tokenize = (worker: Asked, prompt: string): Promise<Ids | null> =>
  ask(worker, '/tokenize', { prompt, add_special_tokens: true }, (json) => objectIn(json)?.['tokens']);

const promptIds = (worker: Asked, text: string): Promise<Ids | null> =>
  ask(worker, generate.path, promptIdsRequest(text), (json) => {
    return generate.read(Buffer.from(json), 0)?.deltas[0]?.promptIds() ?? null;
  });

/**
 * @returns null: the engine knows no such thing, or answers with no ids at all, which says nothing: each text has some. Rejects when
 * the engine can't be asked now.
 */
async function ask(
  worker: Asked,
  path: string,
  question: object,
  idsOf: (json: string) => unknown,
): Promise<Ids | null> {
  const { status, text } = await worker.post(path, JSON.stringify(question), TIMEOUT_MS);
  if (status >= 500 || status === 429 || status === 408) throw new Error(`${path} answers ${status}`);
  if (status !== 200) return null;
  const ids = idsOf(text);
  return Array.isArray(ids) && ids.length > 0 && ids.every((id) => typeof id === 'number') ? ids : null;
}

/** Why exact mode is refused, for people. */
export function differenceIn({ text, ours, theirs }: Verdict & { kind: 'differs' }, worker: Asked): string {
  let at = 0;
  while (at < ours.length && ours[at] === theirs[at]) at++;
  const from = (ids: Ids): string => JSON.stringify(ids.slice(at, at + 5));
  return (
    `--tokenizer-path is not the tokenizer of ${worker.url}: ${JSON.stringify(text)} differs from token ${at} on ` +
    `(here ${from(ours)}, there ${from(theirs)}). Name the folder that the engine was started with, or see docs/reference/exact-tokens.md.`
  );
}
