import type { Exchange } from '../exchange.ts';
import type { Plugin } from '../plugin.ts';
import type { TakePart } from '../wire/chunked.ts';
import { PassingSink } from '../wire/passing-sink.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink } from '../wire/sink.ts';
import type { GuardedObserver } from './guard-listener.ts';
import { HeldBytes } from './held-bytes.ts';
import { ReadShare } from './read-share.ts';

/** @returns `sink`, after the plugins that observe the response, if there are any */
export function listeningSink(x: Exchange, plugins: readonly Plugin[], sink: Sink): Sink {
  const listening = plugins.filter(({ observeResponse }) => observeResponse !== undefined);
  return listening.length === 0 ? sink : new ListeningSink(x, sink, listening);
}

/**
 * Passes a response on as it comes, chunk lines included; listeners get the payload before it is passed on. A listener that throws gets no
 * more of this response: its guard counts that (`phases/guard.ts`), and the response continues.
 */
class ListeningSink extends PassingSink {
  readonly #x: Exchange;
  readonly #plugins: readonly Plugin[];
  readonly #share = new ReadShare();
  #listeners: GuardedObserver[] = [];
  /** The payload comes with chunk lines. */
  #isFramed = false;
  /** null: no listener may hold anything of this response. */
  #held: HeldBytes | null = null;

  constructor(x: Exchange, inner: Sink, plugins: readonly Plugin[]) {
    super(inner);
    this.#x = x;
    this.#plugins = plugins;
  }

  override get hasUnsent(): boolean {
    return super.hasUnsent || this.#held?.isEmpty === false;
  }

  override get payloadObserver(): TakePart | null {
    return this.takesFraming ? this.#tell : null;
  }

  override head(head: ResponseHead): void {
    for (const plugin of this.#plugins) {
      try {
        const listener = plugin.observeResponse!(this.#x, head);
        if (listener !== null) this.#listeners.push(listener);
      } catch {
        // Counted by its guard.
      }
    }
    this.#isFramed = this.takesFraming && head.isChunked && !head.hasNoBody(this.#x.head.method);
    if (this.#listeners.some(({ holds }) => holds !== undefined)) {
      this.#held = new HeldBytes(this.#x, this.inner, head.isEventStream ? null : head.contentLength);
    }
    this.#x.headGoesTo(this.inner);
    this.inner.head(head);
  }

  override body(bytes: Buffer, start: number, end: number): void {
    if (this.#listeners.length > 0) this.#share.add(end - start);
    if (!this.#isFramed) this.#tell(bytes, start, end);
    const held = this.#held;
    if (held === null) this.inner.body(bytes, start, end);
    else {
      if (held.isStream) this.#askToHold(held, false);
      held.pass(bytes, start, end);
    }
  }

  override flush(): boolean {
    const { source } = this.inner;
    let hasRoom = this.inner.flush();
    if (this.#listeners.length === 0) return hasRoom;
    // The sink of a response that has ended may be at its next one; a full sink resumes by itself.
    const resume = (): void => {
      const isFull = super.hasUnsent || this.#held?.isFull === true;
      if (this.inner.source === source && !isFull) source?.resume();
    };
    for (const listener of this.#listeners) if (listener.isBehind?.(resume) === true) hasRoom = false;
    if (this.#held?.isFull === true) {
      this.#held.whenPassed(resume);
      hasRoom = false;
    }
    return hasRoom && !this.#share.isUsedUp(resume);
  }

  override makeReady(done: () => void): void {
    const held = this.#held;
    if (held === null) super.makeReady(done);
    else {
      this.#askToHold(held, true);
      held.end(() => super.makeReady(done));
    }
  }

  override whenPassed(done: () => void): void {
    if (this.#held === null) super.whenPassed(done);
    else this.#held.end(() => super.whenPassed(done));
  }

  #askToHold(held: HeldBytes, isWhole: boolean): void {
    for (const listener of this.#listeners) if (listener.holds?.(isWhole, held.release) === true) held.hold();
  }

  readonly #tell: TakePart = (bytes, start, end) => {
    if (start === end || this.#x.outcome !== null) return;
    for (const listener of this.#listeners) {
      try {
        listener.observe(bytes, start, end);
      } catch (error) {
        listener.report?.(error);
        this.#listeners = this.#listeners.filter((other) => other !== listener);
      }
    }
  };
}
