import type { Exchange } from '../exchange.ts';
import { copyInTurns } from '../kit/copy-slices.ts';
import { EventSplitter, joined } from '../kit/sse.ts';
import type { Plugin } from '../plugin.ts';
import type { PayloadOut } from './payload-out.ts';
import { LARGE_BYTES } from '../threads/sizes.ts';

/** The largest answer body, or event of a stream, that is held for plugins. */
export const MAX_HELD_BYTES = 268_435_456;

/** An event as it came: it takes too long to be joined in one go. */
interface LargeEvent {
  readonly pieces: readonly Buffer[];
  readonly bytes: number;
}

interface EventLineParts {
  readonly x: Exchange;
  readonly plugins: readonly Plugin[];
  readonly out: PayloadOut;
  readonly onFailure: (plugin: Plugin, error: unknown) => void;
  /** False: the exchange has failed or ended. */
  readonly isWanted: () => boolean;
  readonly onBusy: () => void;
  /** Whatever was added can go out: what comes next takes its time. */
  readonly onWait: () => void;
  /** What goes out of an event that all plugins changed. */
  readonly finish: (event: Buffer) => Buffer;
  /** All that came so far is out, or added to what goes out next. */
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
  readonly #splitter = new EventSplitter<Buffer | LargeEvent>((pieces, bytes) =>
    bytes > LARGE_BYTES ? { pieces, bytes } : joined(pieces, bytes),
  );
  #waiting: (Buffer | LargeEvent)[] = [];

  constructor(parts: EventLineParts) {
    this.#parts = parts;
  }

  /** `bytes[start, end)` are valid during the call only. */
  push(bytes: Buffer, start: number, end: number): void {
    for (const event of this.#splitter.pushCopy(bytes, start, end)) this.#take(event);
    if (this.#splitter.heldBytes <= MAX_HELD_BYTES || !this.#parts.isWanted()) return;
    this.#parts.onFailure(this.#parts.plugins[0]!, 'an event of the answer is too large to be held');
  }

  /** What came of the event that is not complete. */
  get begun(): LargeEvent {
    return { pieces: this.#splitter.held, bytes: this.#splitter.heldBytes };
  }

  /** The stream is over. What is left of it is an event too. */
  end(): void {
    const rest = this.#splitter.end();
    if (!(rest instanceof Uint8Array) || rest.length > 0) this.#take(rest);
  }

  #take(event: Buffer | LargeEvent): void {
    if (this.isBusy) this.#waiting.push(event);
    else if (!(event instanceof Uint8Array) || event.length > LARGE_BYTES) void this.#carryAll(this.#joined(event), -1);
    else this.#takeNow(event);
  }

  /** A small event, when none is before it: most of them are done here. */
  #takeNow(event: Buffer): void {
    const { x, plugins, out, onFailure, isWanted, finish } = this.#parts;
    let changed = event;
    for (let i = 0; i < plugins.length; i++) {
      if (!isWanted()) return;
      try {
        const made = plugins[i]!.responseEvent?.(x, changed) ?? changed;
        if (made instanceof Promise) {
          void this.#carryAll(made, i);
          return;
        }
        changed = made;
      } catch (error) {
        onFailure(plugins[i]!, error);
        return;
      }
    }
    const whole = finish(changed);
    if (whole.length > LARGE_BYTES) void this.#carryAll(whole, plugins.length);
    else out.add(whole);
  }

  /** An event that takes several turns, and the events after it. */
  async #carryAll(first: Buffer | Promise<Buffer>, madeBy: number): Promise<void> {
    const { isWanted, onBusy, onIdle } = this.#parts;
    this.isBusy = true;
    onBusy();
    await this.#carry(first, madeBy);
    while (this.#waiting.length > 0 && isWanted()) {
      const events = this.#waiting;
      this.#waiting = [];
      for (const event of events) if (isWanted()) await this.#carry(this.#joined(event), -1);
    }
    this.isBusy = false;
    this.#waiting = [];
    if (isWanted()) onIdle();
  }

  /** @param madeBy the plugin that made it, by its number; -1: none has seen it */
  async #carry(event: Buffer | Promise<Buffer>, madeBy: number): Promise<void> {
    const { x, plugins, out, onFailure, isWanted, onWait, finish } = this.#parts;
    let i = madeBy;
    let changed: Buffer;
    try {
      let made: Buffer | Promise<Buffer> = event;
      for (;;) {
        if (made instanceof Promise) onWait();
        changed = await made;
        if (++i >= plugins.length || !isWanted()) break;
        made = plugins[i]!.responseEvent?.(x, changed) ?? changed;
      }
    } catch (error) {
      if (isWanted()) onFailure(plugins[i]!, error);
      return;
    }
    if (!isWanted()) return;
    // From `plugins.length` on it is finished.
    const whole = madeBy < plugins.length ? finish(changed) : changed;
    if (whole.length <= LARGE_BYTES) out.add(whole);
    else await new Promise<void>((resolve) => out.sendLarge(whole, isWanted, resolve));
  }

  #joined(event: Buffer | LargeEvent): Buffer | Promise<Buffer> {
    if (event instanceof Uint8Array) return event;
    const { isWanted } = this.#parts;
    return new Promise((resolve) => copyInTurns(event.pieces, event.bytes, isWanted, resolve));
  }
}
