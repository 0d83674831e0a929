import type { ResponseHead } from '../../wire/response-head.ts';
import type { Sink, Source } from '../../wire/sink.ts';
import { MAX_HELD_BYTES } from '../plugin-sink.ts';

/** Takes a prefill engine's answer, which nobody gets: it is kept where it is needed, else dropped. */
export class PrefillSink implements Sink {
  readonly takesFraming = false;
  source: Source | null = null;
  isTooLarge = false;
  isEventStream = false;
  readonly #isKept: boolean;
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(isKept: boolean) {
    this.#isKept = isKept;
  }

  head(head: ResponseHead): void {
    this.isEventStream = head.isEventStream;
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (!this.#isKept || this.isTooLarge) return;
    this.#heldBytes += end - start;
    this.isTooLarge = this.#heldBytes > MAX_HELD_BYTES;
    if (this.isTooLarge) this.#held = [];
    else this.#held.push(Buffer.from(bytes.subarray(start, end)));
  }

  flush(): boolean {
    return true;
  }

  end(): void {}
  cut(): void {}

  /** All of it, once: it is let go. */
  take(): Buffer {
    const answer = Buffer.concat(this.#held);
    this.#held = [];
    return answer;
  }
}
