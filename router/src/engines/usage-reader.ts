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

const names = (...all: readonly string[]): readonly Buffer[] => all.map((name) => Buffer.from(`"${name}"`));
/** As OpenAI's completions and SGLang's `meta_info` spell it, then as the Responses and the Messages API do. */
const OUTPUT = names('completion_tokens', 'output_tokens');
const PROMPT = names('prompt_tokens', 'input_tokens');
const CACHED = names('cached_tokens', 'cache_read_input_tokens');

/**
 * Finds the token counts of an answer as it passes: `usage` of OpenAI's APIs, `meta_info` of SGLang's. They are found where they stand
 * in the last bytes that were read at once; in an answer of several results (a JSON array) they are not looked for.
 *
 * In an event stream a read is searched only where its last event may hold counts: it ends in an object within an object, or the
 * stream ends with it. That is a look at a few bytes of the others.
 */
export class UsageReader {
  /** null: none was found so far. */
  usage: Usage | null = null;
  readonly #isEventStream: boolean;

  constructor(isEventStream: boolean) {
    this.#isEventStream = isEventStream;
  }

  /** @param isLast nothing of the answer comes after these bytes */
  read(bytes: Buffer, start: number, end: number, isLast: boolean): void {
    const last = lastOfContent(bytes, start, end);
    if (this.#isEventStream ? !mayHoldCounts(bytes, last) : isLast && bytes[last] !== RBRACE) return;
    const from = isLast && !this.#isEventStream ? start : Math.max(start, end - TAIL_BYTES);
    const found = findUsage(bytes.subarray(from, end));
    if (found !== null) this.usage = found;
  }
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

function findUsage(part: Buffer): Usage | null {
  const outputTokens = countAfter(part, OUTPUT);
  if (outputTokens < 0) return null;
  return { promptTokens: countAfter(part, PROMPT), cachedTokens: countAfter(part, CACHED), outputTokens };
}

/** The number after the last of the first of these names that is there, -1 if there is none. */
function countAfter(part: Buffer, spellings: readonly Buffer[]): number {
  for (const name of spellings) {
    const at = part.lastIndexOf(name);
    if (at < 0) continue;
    let i = at + name.length;
    while (part[i] === COLON || part[i] === SPACE) i++;
    const first = i;
    let value = 0;
    for (let digit = (part[i] ?? 0) - ZERO; digit >= 0 && digit <= 9; digit = (part[++i] ?? 0) - ZERO) {
      value = value * 10 + digit;
    }
    if (i > first) return value;
  }
  return -1;
}
