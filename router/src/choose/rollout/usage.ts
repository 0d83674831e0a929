import type { AnswerEar } from '../../exchange.ts';

const COMPLETION_TOKENS = Buffer.from('"completion_tokens"');
const PROMPT_TOKENS = Buffer.from('"prompt_tokens"');
const DATA = Buffer.from('data:');
const COLON = 0x3a;
const ZERO = 0x30;

/** Larger reads than this are not searched: they carry routed experts or logprobs, and the counts stand at their ends. */
const MAX_SEARCHED_BYTES = 65_536;
/** Tokens of an answer's byte, where nothing in it says how many there are. */
const TOKENS_PER_BYTE = 1 / 4;

/**
 * Hears how long an answer was: by the counts that engines put into it (`usage` of OpenAI's APIs, `meta_info` of SGLang's, in
 * every event or the last one), else by its events, else by its bytes.
 */
export class UsageEar implements AnswerEar {
  /** The counts as the engine gave them last, -1 where it gave none. */
  promptTokens = -1;
  #completionTokens = -1;
  #events = 0;
  #bytes = 0;

  hear(bytes: Uint8Array, start: number, end: number): void {
    this.#bytes += end - start;
    if (end - start > MAX_SEARCHED_BYTES) return;
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start);
    const completion = countAfter(buffer, COMPLETION_TOKENS);
    if (completion >= 0) {
      this.#completionTokens = completion;
      if (this.promptTokens < 0) this.promptTokens = countAfter(buffer, PROMPT_TOKENS);
    } else if (buffer.indexOf(DATA) === 0) this.#events++;
  }

  get answerTokens(): number {
    if (this.#completionTokens >= 0) return this.#completionTokens;
    return this.#events > 1 ? this.#events : Math.round(this.#bytes * TOKENS_PER_BYTE);
  }
}

/** The number behind the last `name`, -1 if there is none. */
function countAfter(buffer: Buffer, name: Buffer): number {
  const at = buffer.lastIndexOf(name);
  if (at < 0) return -1;
  let i = at + name.length;
  while (buffer[i] === COLON || buffer[i] === 0x20) i++;
  const first = i;
  let value = 0;
  for (let digit = buffer[i]! - ZERO; digit >= 0 && digit <= 9; digit = buffer[++i]! - ZERO) value = value * 10 + digit;
  return i === first ? -1 : value;
}
