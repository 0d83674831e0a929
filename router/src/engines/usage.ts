/** Token counts of a response, as far as its engine reports them. */
export interface Usage {
  promptTokens: number | null;
  /** Tokens of the prompt that were in the engine's cache. */
  cachedTokens: number | null;
  outputTokens: number;
}

const QUOTE = 0x22;
const RBRACE = 0x7d;
const RBRACKET = 0x5d;
const ZERO = 0x30;
const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
/** The last letters of the names. */
const E = 0x65;
const S = 0x73;

/** Counts are searched in this many bytes at the end of a read. */
const TAIL_BYTES = 4_096;

/** Counts are within this many bytes of each other, and mostly of the end. */
const NEAR_BYTES = 512;

const named = (...names: readonly string[]): Buffer[] => names.map((name) => Buffer.from(`"${name}"`));
/** Of OpenAI's completions and SGLang's `meta_info`; of the Responses and Messages APIs. */
const OUTPUT = named('completion_tokens', 'output_tokens');
const PROMPT = named('prompt_tokens', 'input_tokens');
const CACHED = named('cached_tokens');
/** Of the Messages API, whose `input_tokens` are only those that were not in the cache. */
const CACHE_READ = named('cache_read_input_tokens');
const CACHE_MADE = named('cache_creation_input_tokens');
/** The object that has them in OpenAI's APIs. */
const USAGE = named('usage');

interface Name {
  readonly name: Buffer;
  readonly kind: readonly Buffer[];
}

const NOT_ONE: readonly Name[] = [];
const byLength: Name[][] = [];
for (const kind of [OUTPUT, PROMPT, CACHED, CACHE_READ, CACHE_MADE, USAGE]) {
  for (const name of kind) (byLength[name.length] ??= []).push({ name, kind });
}

/**
 * Finds the token counts in one read of a response: `usage` of OpenAI's APIs, `meta_info` of SGLang's. A response with
 * several results (a JSON array) is not searched.
 *
 * A read of an event stream is searched only if its last event may have counts: it ends with an object or a text in an object,
 * or the stream ends with it. Other reads cost a look at a few bytes.
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

/**
 * What was read of the same response before counts where these bytes do not say it: SGLang's Messages API (0.5.23) counts the prompt only in
 * the first event of a stream.
 */
export function withEarlier(read: Usage | null, earlier: Usage | null): Usage | null {
  if (read === null || earlier === null) return read ?? earlier;
  read.promptTokens ??= earlier.promptTokens;
  read.cachedTokens ??= earlier.cachedTokens;
  return read;
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

/** An event with counts ends with `}}`, that of vLLM (since 0.32, vllm-project/vllm#40537) with a text, `system_fingerprint`, which no earlier event has; `[DONE]` follows it. */
function mayHoldCounts(bytes: Buffer, last: number): boolean {
  if (bytes[last] !== RBRACE) return bytes[last] === RBRACKET;
  return bytes[last - 1] === RBRACE || bytes[last - 1] === QUOTE;
}

/** Searches `bytes[from, end)`; bytes before `from` cost time. */
function findUsage(bytes: Buffer, from: number, end: number): Usage | null {
  let usage = usageNear(bytes, Math.max(from, end - NEAR_BYTES), end);
  for (const name of OUTPUT) {
    const at = usage === null ? lastBefore(bytes, name, from, end) : -1;
    if (at >= 0) usage = usageNear(bytes, Math.max(from, at - NEAR_BYTES), Math.min(end, at + NEAR_BYTES));
  }
  if (usage === null) return null;
  for (const name of PROMPT) {
    // SGLang puts logprobs between the two.
    usage.promptTokens ??= known(countAt(bytes, lastBefore(bytes, name, from, end), name));
  }
  return usage;
}

/** Reads few bytes from their end, one by one: a search for each name takes longer (benchmark `json-2k`). */
function usageNear(bytes: Buffer, from: number, end: number): Usage | null {
  let promptTokens = -1;
  let cachedTokens = -1;
  let outputTokens = -1;
  let apart = 0;
  for (let i = end - 1; i > from; i--) {
    if (bytes[i] !== QUOTE || (bytes[i - 1] !== S && bytes[i - 1] !== E)) continue;
    let first = i - 1;
    while (first > from && bytes[first] !== QUOTE) first--;
    const kind = kindOf(bytes, first, i);
    if (kind === OUTPUT && outputTokens < 0) outputTokens = countAfter(bytes, i);
    else if (kind === PROMPT && promptTokens < 0) promptTokens = countAfter(bytes, i);
    else if (kind === CACHED && cachedTokens < 0) cachedTokens = countAfter(bytes, i);
    else if (kind === CACHE_READ && cachedTokens < 0) apart += Math.max(0, (cachedTokens = countAfter(bytes, i)));
    else if (kind === CACHE_MADE) apart += Math.max(0, countAfter(bytes, i));
    else if (kind === USAGE && outputTokens >= 0) break;
    // Of a name that is not known, the quote at its beginning may be the end of another one.
    else continue;
    i = first;
  }
  return outputTokens < 0
    ? null
    : {
        promptTokens: known(promptTokens < 0 ? -1 : promptTokens + apart),
        cachedTokens: known(cachedTokens),
        outputTokens,
      };
}

const known = (count: number): number | null => (count < 0 ? null : count);

/** The names of which `bytes[first, last]`, with its quotes, is one; null: it is another text. */
function kindOf(bytes: Buffer, first: number, last: number): readonly Buffer[] | null {
  for (const { name, kind } of byLength[last - first + 1] ?? NOT_ONE) {
    let i = 1;
    while (i < name.length && bytes[first + i] === name[i]) i++;
    if (i === name.length && bytes[first] === QUOTE) return kind;
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
const countAt = (part: Buffer, at: number, name: Buffer): number =>
  at < 0 ? -1 : countAfter(part, at + name.length - 1);

/** The number after the name that ends with the quote at `quote`, or -1. */
function countAfter(part: Buffer, quote: number): number {
  let i = quote + 1;
  while (part[i] === COLON || part[i] === SPACE) i++;
  const first = i;
  let value = 0;
  for (let digit = (part[i] ?? 0) - ZERO; digit >= 0 && digit <= 9; digit = (part[++i] ?? 0) - ZERO) {
    value = value * 10 + digit;
  }
  return i === first ? -1 : value;
}
