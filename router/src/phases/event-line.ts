import { EventSplitter } from '../kit/sse.ts';
import type { Changes, Pieces, Soon } from './changes.ts';

/** The largest answer body, or event of a stream, that is held for plugins. */
export const MAX_HELD_BYTES = 268_435_456;

interface EventLineParts {
  readonly changes: Changes;
  readonly onTooLarge: () => void;
  readonly onBusy: () => void;
  /** Whatever was put can go out: what comes next takes its time. */
  readonly onWait: () => void;
  /** Takes an event that all plugins changed. */
  readonly put: (event: Buffer) => Soon<void>;
  /** All that came so far was put. */
  readonly onIdle: () => void;
}

/**
 * Takes plugins through the events of a stream, in the order in which they come. Small ones that are changed at once are through when
 * `push` returns. A large one, or one whose plugin returns a promise, takes several turns of the event loop; later ones wait for it.
 */
export class EventLine {
  /** An event takes its time: nothing more should come. */
  isBusy = false;
  readonly #parts: EventLineParts;
  readonly #splitter = new EventSplitter<Pieces>((pieces, bytes) => ({ pieces, bytes }));
  #waiting: (Buffer | Pieces)[] = [];

  constructor(parts: EventLineParts) {
    this.#parts = parts;
  }

  /** `bytes[start, end)` are valid during the call only. */
  push(bytes: Buffer, start: number, end: number): void {
    for (const event of this.#splitter.pushCopy(bytes, start, end)) this.#take(event);
    if (this.#splitter.heldBytes > MAX_HELD_BYTES && this.#parts.changes.isWanted()) this.#parts.onTooLarge();
  }

  /** What came of the event that is not complete. */
  get begun(): Pieces {
    return { pieces: this.#splitter.held, bytes: this.#splitter.heldBytes };
  }

  /** The stream is over. What is left of it is an event too. */
  end(): void {
    const rest = this.#splitter.end();
    if (!(rest instanceof Uint8Array) || rest.length > 0) this.#take(rest);
  }

  #take(event: Buffer | Pieces): void {
    if (this.isBusy) {
      this.#waiting.push(event);
      return;
    }
    const carried = this.#carry(event);
    if (carried instanceof Promise) void this.#wait(carried);
  }

  /** The events after one that takes several turns wait for it. */
  async #wait(first: Promise<void>): Promise<void> {
    const { changes, onBusy, onWait, onIdle } = this.#parts;
    this.isBusy = true;
    onBusy();
    onWait();
    await first;
    while (this.#waiting.length > 0) {
      for (const event of this.#waiting.splice(0)) {
        const carried = this.#carry(event);
        if (!(carried instanceof Promise)) continue;
        onWait();
        await carried;
      }
    }
    this.isBusy = false;
    if (changes.isWanted()) onIdle();
  }

  #carry(event: Buffer | Pieces): Soon<void> {
    const { changes, put } = this.#parts;
    return changes.next(changes.change('responseEvent', event), put);
  }
}
