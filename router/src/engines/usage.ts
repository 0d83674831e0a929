/** Tokens of an answer, as its engine counted them; -1 where it gave no count. */
export interface Usage {
  promptTokens: number;
  /** Of the prompt, found in the engine's cache. */
  cachedTokens: number;
  outputTokens: number;
}

const RBRACE = 0x7d;
const RBRACKET = 0x5d;
const ZERO = 0x30;
const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;

/** Counts are looked for in so many bytes at the end of an event, or of a part of an answer. */
const TAIL_BYTES = 4_096;

/** The other counts stand within so many bytes of that of the answer's tokens. */
const NEAR_BYTES = 512;

const spelled = (output: string, prompt: string, ...cached: readonly string[]) => ({
  output: Buffer.from(`"${output}"`),
  prompt: Buffer.from(`"${prompt}"`),
  cached: cached.map((name) => Buffer.from(`"${name}"`)),
});
/** How all of these names end: one search where there are no counts. */
const TOKENS = Buffer.from('_tokens"');
/** As OpenAI's completions and SGLang's `meta_info` spell them; as the Responses and the Messages API do. */
const SPELLINGS = [
  spelled('completion_tokens', 'prompt_tokens', 'cached_tokens'),
  spelled('output_tokens', 'input_tokens', 'cached_tokens', 'cache_read_input_tokens'),
];

/**
 * Finds the token counts of an answer in what of it was read at once: `usage` of OpenAI's APIs, `meta_info` of SGLang's. In an answer
 * of several results (a JSON array) they are not looked for.
 *
 * A read of an event stream is searched only where its last event may hold counts: it ends in an object within an object, or the
 * stream ends with it. That is a look at a few bytes of the others.
 *
 * @param isLast nothing of the answer comes after these bytes
 * @returns null: there are none
 */
export function readUsage(
  bytes: Buffer,
  start: number,
  end: number,
  isEventStream: boolean,
  isLast: boolean,
): Usage | null {
  const last = lastOfContent(bytes, start, end);
  if (isEventStream ? !mayHoldCounts(bytes, last) : isLast && bytes[last] !== RBRACE) return null;
  const from = isLast && !isEventStream ? start : Math.max(start, end - TAIL_BYTES);
  // A view costs as much as the search: only where much stands before what is searched.
  return from < TAIL_BYTES ? findUsage(bytes, from, end) : findUsage(bytes.subarray(from, end), 0, end - from);
}

/** Where the last byte is that is no end of a line and no end of a chunked body. */
function lastOfContent(bytes: Buffer, start: number, end: number): number {
  let at = skipLineEnds(bytes, start, end - 1);
  if (at < end - 1 && bytes[at] === ZERO && at > start && bytes[at - 1] === LF) at = skipLineEnds(bytes, start, at - 1);
  return at;
}

function skipLineEnds(bytes: Buffer, start: number, from: number): number {
  let at = from;
  while (at > start && (bytes[at] === LF || bytes[at] === CR)) at--;
  return at;
}

/** `}}` ends an event with counts; `[DONE]` follows it. */
const mayHoldCounts = (bytes: Buffer, last: number): boolean =>
  bytes[last] === RBRACE ? bytes[last - 1] === RBRACE : bytes[last] === RBRACKET;

/** Searches `bytes[from, end)`; what is before `from` costs time. */
function findUsage(bytes: Buffer, from: number, end: number): Usage | null {
  if (lastBefore(bytes, TOKENS, from, end) < 0) return null;
  for (const { output, prompt, cached } of SPELLINGS) {
    const at = lastBefore(bytes, output, from, end);
    const outputTokens = countAt(bytes, at, output);
    if (outputTokens < 0) continue;
    const nearStart = Math.max(from, at - NEAR_BYTES);
    const near = bytes.subarray(nearStart, Math.min(end, at + NEAR_BYTES));
    let promptTokens = countAt(near, near.lastIndexOf(prompt), prompt);
    // SGLang puts logprobs between the two.
    if (promptTokens < 0) promptTokens = countAt(bytes, lastBefore(bytes, prompt, from, end), prompt);
    let cachedTokens = -1;
    for (const name of cached) if (cachedTokens < 0) cachedTokens = countAt(near, near.lastIndexOf(name), name);
    return { promptTokens, cachedTokens, outputTokens };
  }
  return null;
}

/** Where the last `name` begins that is in `bytes[from, end)`, -1 if there is none. */
function lastBefore(bytes: Buffer, name: Buffer, from: number, end: number): number {
  if (end - name.length < from) return -1;
  const at = bytes.lastIndexOf(name, end - name.length);
  return at < from ? -1 : at;
}

/** The number after the `name` at `at`, -1 if there is none. */
function countAt(part: Buffer, at: number, name: Buffer): number {
  if (at < 0) return -1;
  let i = at + name.length;
  while (part[i] === COLON || part[i] === SPACE) i++;
  const first = i;
  let value = 0;
  for (let digit = (part[i] ?? 0) - ZERO; digit >= 0 && digit <= 9; digit = (part[++i] ?? 0) - ZERO) {
    value = value * 10 + digit;
  }
  return i === first ? -1 : value;
}
