import { WorkerThread } from '../../../threads/worker-thread.ts';
import type { EncodeCalls } from './encode-in-thread.ts';
import type { TokenizerSource } from './load-tokenizer.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Limits of encoding, in UTF-16 units of text. */
interface EncodingLimits {
  /** A longer text is encoded on a thread of its own: so many take up to 0.3 s. */
  readonly large: number;
  /** A longer text is refused: so many take up to 30 s and 1.6 GB (native, a text without spaces). */
  readonly max: number;
  /** How much may be on that thread and wait for it. */
  readonly maxWaiting: number;
  readonly maxMs: number;
}

const LIMITS: EncodingLimits = { large: 65_536, max: 4_194_304, maxWaiting: 8_388_608, maxMs: 30_000 };

/** A text that is not encoded. */
export class EncodingRefused extends Error {
  readonly code: 'payload_too_large' | 'overloaded';

  constructor(code: EncodingRefused['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/** The same as plain data. */
export type Refusal = Pick<EncodingRefused, 'code' | 'message'>;

/** Throws any other error. */
export function refusalOf(error: unknown): Refusal {
  if (!(error instanceof EncodingRefused)) throw error;
  return { code: error.code, message: error.message };
}

/**
 * A tokenizer that does one thing at a time: the native one works on libuv's threads, which all threads of the process share with DNS
 * lookups, and could take all four of them. Large texts have a lane of their own, so that others do not wait for them: at most two of
 * the four are taken.
 */
export function inLanes(tokenizer: Tokenizer, source: TokenizerSource, limits: EncodingLimits = LIMITS): Tokenizer {
  const lane = inTurn();
  const large = new LargeTexts(source, limits);
  const isNative = tokenizer.kind === 'native';
  return {
    ...tokenizer,
    encode(text, addSpecial) {
      if (text.length > limits.large) return large.encode(text, addSpecial);
      return isNative ? lane(() => tokenizer.encode(text, addSpecial)) : tokenizer.encode(text, addSpecial);
    },
    decode: isNative ? (ids) => lane(() => tokenizer.decode(ids)) : tokenizer.decode,
  };
}

/** Encodes texts on a thread, which begins with the first one. */
class LargeTexts {
  readonly #limits: EncodingLimits;
  readonly #thread: WorkerThread<EncodeCalls>;
  readonly #lane = inTurn();
  #waiting = 0;

  constructor(source: TokenizerSource, limits: EncodingLimits) {
    this.#limits = limits;
    this.#thread = new WorkerThread('recorder/thread/tokens/encode-in-thread', { workerData: source });
  }

  async encode(text: string, addSpecial: boolean): Promise<readonly number[]> {
    const { length } = text;
    const { max, maxWaiting } = this.#limits;
    if (length > max)
      throw new EncodingRefused(
        'payload_too_large',
        `The text has ${length} characters; at most ${max} are tokenised.`,
      );
    if (this.#waiting + length > maxWaiting)
      throw new EncodingRefused('overloaded', 'Too much text waits to be tokenised. Retry later.');
    this.#waiting += length;
    try {
      return await this.#lane(() => this.#encode(text, addSpecial));
    } finally {
      this.#waiting -= length;
    }
  }

  async #encode(text: string, addSpecial: boolean): Promise<readonly number[]> {
    const { maxMs } = this.#limits;
    let ended = Promise.resolve();
    const timer = setTimeout(() => {
      const message = `The text was not tokenised within ${maxMs / 1_000} s.`;
      ended = this.#thread.abort(new EncodingRefused('payload_too_large', message));
    }, maxMs);
    try {
      return [...(await this.#thread.ask('encode', { text, addSpecial }))];
    } finally {
      clearTimeout(timer);
      // The native tokenizer can't be interrupted: the next text waits until it is done.
      await ended;
    }
  }
}

/** Runs one call after another. */
function inTurn(): <T>(call: () => T | Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (call) => {
    const next = last.then(call);
    last = next.catch(() => {});
    return next;
  };
}
