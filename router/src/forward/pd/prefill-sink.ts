import { copyInTurns } from '../../kit/copy-slices.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Sink, Source } from '../../wire/sink.ts';
import { MAX_HELD_BYTES } from '../event-line.ts';

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

  /** Calls `done` with all of it, once: it is let go. At once unless it has megabytes (`copyInTurns`). */
  take(isWanted: () => boolean, done: (answer: Buffer) => void): void {
    const held = this.#held;
    this.#held = [];
    copyInTurns(held, this.#heldBytes, isWanted, done);
  }
}
