/** Token counts of a response by its engine; -1 if not reported. */
export interface Usage {
  promptTokens: number;
  /** Tokens of the prompt that were in the engine's cache. */
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

/** Counts are searched in this many bytes at the end of a read. */
const TAIL_BYTES = 4_096;

/** The other counts are within this many bytes of the count of output tokens. */
const NEAR_BYTES = 512;

const spelled = (output: string, prompt: string, ...cached: readonly string[]) => ({
  output: Buffer.from(`"${output}"`),
  prompt: Buffer.from(`"${prompt}"`),
  cached: cached.map((name) => Buffer.from(`"${name}"`)),
});
/** OpenAI's completions and SGLang's `meta_info`; the Responses and Messages APIs. */
const SPELLINGS = [
  spelled('completion_tokens', 'prompt_tokens', 'cached_tokens'),
  spelled('output_tokens', 'input_tokens', 'cached_tokens', 'cache_read_input_tokens'),
];

/**
 * Finds the token counts in one read of a response: `usage` of OpenAI's APIs, `meta_info` of SGLang's. A response with
 * several results (a JSON array) is not searched.
 *
 * A read of an event stream is searched only if its last event may have counts: it ends with an object in an object, or
 * the stream ends with it. Other reads cost a look at a few bytes.
 *
 * @param isLast these bytes are the last of the response
 * @returns null if there are none
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
  // A view costs as much as the search, so it is made only if many bytes come before the searched ones.
  return from < TAIL_BYTES ? findUsage(bytes, from, end) : findUsage(bytes.subarray(from, end), 0, end - from);
}

/** The index of the last byte that is not a line end or the end of a chunked body. */
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

/** An event with counts ends with `}}`; `[DONE]` follows it. */
const mayHoldCounts = (bytes: Buffer, last: number): boolean =>
  bytes[last] === RBRACE ? bytes[last - 1] === RBRACE : bytes[last] === RBRACKET;

/** Searches `bytes[from, end)`; bytes before `from` cost time. */
function findUsage(bytes: Buffer, from: number, end: number): Usage | null {
  for (const { output, prompt, cached } of SPELLINGS) {
    const at = lastBefore(bytes, output, from, end);
    const outputTokens = countAt(bytes, at, output);
    if (outputTokens < 0) continue;
    const nearStart = Math.max(from, at - NEAR_BYTES);
    const nearEnd = Math.min(end, at + NEAR_BYTES);
    let promptTokens = countAt(bytes, lastBefore(bytes, prompt, nearStart, nearEnd), prompt);
    // SGLang puts logprobs between the two.
    if (promptTokens < 0) promptTokens = countAt(bytes, lastBefore(bytes, prompt, from, end), prompt);
    let cachedTokens = -1;
    for (const name of cached) {
      if (cachedTokens < 0) cachedTokens = countAt(bytes, lastBefore(bytes, name, nearStart, nearEnd), name);
    }
    return { promptTokens, cachedTokens, outputTokens };
  }
  return null;
}

/** The index of the last `name` in `bytes[from, end)`, or -1. */
function lastBefore(bytes: Buffer, name: Buffer, from: number, end: number): number {
  if (end - name.length < from) return -1;
  const at = bytes.lastIndexOf(name, end - name.length);
  return at < from ? -1 : at;
}

/** The number after the `name` at `at`, or -1. */
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
