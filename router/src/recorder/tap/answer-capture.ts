import type { ResponseObserver } from '../../exchange.ts';
import type { ExchangeView as Exchange } from '../../phases/exchange-view.ts';
import type { StoredFirst } from './stored-first.ts';
import type { AnswerTap } from './answer-tap.ts';
import type { ExpertsTap } from './experts-tap.ts';

/** How long the end of a stream is waited for after its last choice ended: engines send counts and ids that belong to it soon. */
const LINGER_MS = 250;

export interface AnswerCaptureParts {
  readonly tap: AnswerTap;
  /** How many choices were asked for. */
  readonly choices: number;
  /** After the event that ends the last choice more may come that belongs to the record. */
  readonly hasMore: boolean;
  /**
   * Hands what came to the recorder thread. `isLast`: nothing more will be handed over. @returns null: there is nothing to wait for;
   * otherwise whether its turns are in the store
   */
  readonly handOver: (isLast: boolean) => Promise<boolean> | null;
}

/**
 * Captures an answer. Its turns are handed over before the client can act on them: when a choice of a stream ends (its `finish_reason`), and
 * when a whole answer is complete. Until then, and until the store has the turns, that part of the answer is held.
 */
export class AnswerCapture implements ResponseObserver {
  readonly tap: AnswerTap;
  readonly #experts: ExpertsTap;
  readonly #parts: AnswerCaptureParts;
  readonly #storedFirst: StoredFirst;
  /** So many ends of choices were handed over. */
  #handedOver = 0;
  #isOver = false;
  /** Sends what is held while more of the stream is waited for. */
  #release: (() => void) | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(parts: AnswerCaptureParts, experts: ExpertsTap, storedFirst: StoredFirst) {
    this.tap = parts.tap;
    this.#experts = experts;
    this.#parts = parts;
    this.#storedFirst = storedFirst;
    this.tap.takeOut(experts);
  }

  /** What the thread knows its routed experts by; null: it has none. */
  get expertsKey(): number | null {
    return this.#experts.hasCut ? this.#experts.key : null;
  }

  observe(bytes: Buffer, start: number, end: number): void {
    if (!this.#isOver) this.tap.observe(bytes, start, end);
  }

  isBehind(resume: () => void): boolean {
    return this.#experts.isBehind(resume);
  }

  holds(isWhole: boolean, release: () => void): boolean {
    const { finished, isEnding, isDone, isTooLarge } = this.tap;
    if (this.#isOver || isTooLarge) return false;
    const { choices, hasMore } = this.#parts;
    const hasNew = finished > this.#handedOver;
    const isLast = isWhole || isDone || (hasNew && !hasMore && finished >= choices);
    if (!isLast && !hasNew && !isEnding) return false;
    const isWaiting = this.#release !== null;
    // What only completes turns that were handed over delays nothing.
    const completes = isLast && !hasNew && !isWaiting && this.#handedOver > 0;
    if (!isWaiting && !completes) this.#release = release;
    if (isLast || (hasNew && finished < choices)) return this.#handOver(isLast) && !isWaiting;
    this.#timer ??= setTimeout(() => void this.#handOver(false), LINGER_MS);
    return !isWaiting;
  }

  /** The exchange is over, however it ended. @returns whether all that came was handed over */
  end({ outcome }: Exchange): boolean {
    const { isStream, isTooLarge } = this.tap;
    // The tokens of a truncated stream were sampled too.
    const isKept = !isTooLarge && (isStream || outcome === 'complete');
    if (!this.#isOver && isKept) this.#handOver(true);
    this.#stopWaiting();
    const isHandedOver = this.#isOver;
    this.#isOver = true;
    return isHandedOver;
  }

  /** Removes the routed experts of this response from the recorder thread. */
  dropExperts(): void {
    this.#experts.drop();
  }

  /** @returns true: what is held will be sent later */
  #handOver(isLast: boolean): boolean {
    const { finished, isTooLarge } = this.tap;
    const isHeld = this.#timer !== null;
    const release = this.#stopWaiting();
    this.#handedOver = finished;
    this.#isOver = isLast;
    const stored = isTooLarge ? null : this.#parts.handOver(isLast);
    if (release === null) return false;
    if (stored !== null) {
      this.#storedFirst.whenStored(stored, release);
      return true;
    }
    if (isHeld) release();
    return false;
  }

  #stopWaiting(): (() => void) | null {
    const release = this.#release;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#release = null;
    return release;
  }
}
