import type { AnswerEar } from '../../exchange.ts';

const COMPLETION_TOKENS = Buffer.from('"completion_tokens"');
const PROMPT_TOKENS = Buffer.from('"prompt_tokens"');
const COLON = 0x3a;
const ZERO = 0x30;

/** Larger reads than this are not searched: they carry routed experts or logprobs, and the counts stand at their ends. */
const MAX_SEARCHED_BYTES = 65_536;
/** Tokens of an answer's byte, where nothing in it says how many there are. */
const TOKENS_PER_BYTE = 1 / 4;

/**
 * Hears how long an answer was: by the counts that engines put into it (`usage` of OpenAI's APIs, `meta_info` of SGLang's, in
 * every event or the last one); else by how often something of it came, which is about once a token where engines stream; else
 * by its bytes.
 */
export class UsageEar implements AnswerEar {
  /** The counts as the engine gave them last, -1 where it gave none. */
  promptTokens = -1;
  #completionTokens = -1;
  #reads = 0;
  #bytes = 0;

  /** For another attempt. */
  reset(): void {
    this.promptTokens = -1;
    this.#completionTokens = -1;
    this.#reads = 0;
    this.#bytes = 0;
  }

  hear(bytes: Buffer, start: number, end: number): void {
    this.#bytes += end - start;
    if (end - start > MAX_SEARCHED_BYTES) return;
    const completion = countAfter(bytes, start, end, COMPLETION_TOKENS);
    if (completion >= 0) {
      this.#completionTokens = completion;
      if (this.promptTokens < 0) this.promptTokens = countAfter(bytes, start, end, PROMPT_TOKENS);
    } else this.#reads++;
  }

  get answerTokens(): number {
    if (this.#completionTokens >= 0) return this.#completionTokens;
    return this.#reads > 1 ? this.#reads : Math.round(this.#bytes * TOKENS_PER_BYTE);
  }
}

/** The number behind the last `name` in `bytes[start, end)`, -1 if there is none. */
function countAfter(bytes: Buffer, start: number, end: number, name: Buffer): number {
  const at = bytes.lastIndexOf(name, end - name.length);
  if (at < start) return -1;
  let i = at + name.length;
  while (bytes[i] === COLON || bytes[i] === 0x20) i++;
  const first = i;
  let value = 0;
  for (let digit = bytes[i]! - ZERO; digit >= 0 && digit <= 9; digit = bytes[++i]! - ZERO) value = value * 10 + digit;
  return i === first ? -1 : value;
}
