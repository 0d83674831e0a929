import type { Exchange } from '../exchange.ts';
import { copyInTurns } from '../kit/copy-slices.ts';
import type { Plugin } from '../plugin.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink, Source } from '../wire/sink.ts';
import { EventLine, MAX_HELD_BYTES } from './event-line.ts';
import { heardSink } from './listening-sink.ts';
import type { Merging } from './merging.ts';
import { PayloadOut } from './payload-out.ts';
import { LARGE_BYTES } from './pd/meeting.ts';
import { ReadShare } from './read-share.ts';

/** How a plugin failed its exchange. */
export type OnPluginFailure = (x: Exchange, plugin: Plugin, error: unknown) => void;

/** @returns `x`'s sink, behind its plugins if some of them change answers or listen. `first`: one of the router's own, before them */
export function answerSink(x: Exchange, onFailure: OnPluginFailure, first: Merging | null = null): Sink {
  const theirs = x.plugins.filter((p) => p.responseHead ?? p.responseEvent ?? p.responseBody);
  const plugins = first === null ? theirs : [first, ...theirs];
  return heardSink(x, plugins.length === 0 ? x.sink : new PluginSink(x, plugins, onFailure, first));
}

/**
 * Stands before a sink and takes plugins through the answer: payload in, events or the whole body past the plugins,
 * framed anew. Made only for exchanges that a plugin takes part in.
 */
class PluginSink implements Sink {
  readonly takesFraming = false;
  readonly #x: Exchange;
  readonly #inner: Sink;
  readonly #plugins: readonly Plugin[];
  readonly #onFailure: OnPluginFailure;
  /** How much the first of `plugins` puts in, if that is one of the router's own. */
  readonly #mergedBytes: number;
  readonly #out: PayloadOut;
  readonly #share = new ReadShare();
  #source: Source | null = null;
  #head: ResponseHead | null = null;
  #events: EventLine | null = null;
  /** Waits for the last event to be through. */
  #whenIdle: (() => void) | null = null;
  /** The whole body, while it is held for `responseBody`; null otherwise. */
  #held: Buffer[] | null = null;
  #heldBytes = 0;
  #hasFailed = false;

  constructor(x: Exchange, plugins: readonly Plugin[], onFailure: OnPluginFailure, first: Merging | null) {
    this.#x = x;
    this.#inner = x.sink;
    this.#plugins = plugins;
    this.#onFailure = onFailure;
    this.#mergedBytes = first?.bytes ?? 0;
    this.#out = new PayloadOut(x.sink);
  }

  get source(): Source | null {
    return this.#source;
  }

  set source(source: Source | null) {
    this.#source = source;
    // While an event takes its time, its engine is not to be woken.
    if (this.#events?.isBusy !== true) this.#inner.source = source;
  }

  get hasUnsent(): boolean {
    return this.#events?.isBusy === true;
  }

  head(head: ResponseHead): void {
    this.#head = head;
    for (const plugin of this.#plugins) {
      try {
        plugin.responseHead?.(this.#x, head);
      } catch (error) {
        this.#fail(plugin, error);
        return;
      }
    }
    const hasBody = !head.hasNoBody(this.#x.head.method);
    if (hasBody && head.isEventStream && this.#plugins.some((p) => p.responseEvent)) {
      this.#events = this.#newLine();
      head.drop('content-length');
      head.contentLength = -1;
      head.isChunked = true;
    } else if (hasBody && !head.isEventStream && this.#plugins.some((p) => p.responseBody)) {
      this.#held = [];
      return;
    }
    this.#sendHead(head, hasBody);
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (this.#hasFailed) return;
    if (this.#events !== null) {
      this.#share.add(end - start);
      this.#events.push(bytes, start, end);
      return;
    }
    const part = Buffer.from(bytes.subarray(start, end));
    if (this.#held !== null) {
      this.#heldBytes += part.length;
      if (this.#heldBytes > MAX_HELD_BYTES) this.#fail(this.#plugins[0]!, 'the answer is too large to be held');
      else this.#held.push(part);
    } else this.#out.add(part);
  }

  flush(): boolean {
    if (this.#held !== null || this.#hasFailed) return true;
    const isBusy = this.hasUnsent;
    // Without any event before that one, an error status is possible still: it may fail.
    if (isBusy && this.#out.isEmpty) return false;
    this.#out.send();
    return this.#inner.flush() && !isBusy && !this.#share.isUsedUp(this.#resume);
  }

  /** Plugins may take their time with a body that is held, or with events: all of them are through before the end. */
  makeReady(done: () => void): void {
    if (this.#hasFailed) return done();
    if (this.#events !== null) {
      this.#whenIdle = done;
      this.#events.end();
      if (this.#events.isBusy) this.flush();
      else if (!this.#hasFailed) done();
      return;
    }
    const held = this.#held;
    if (held === null) return done();
    if (this.#heldBytes + this.#mergedBytes <= LARGE_BYTES) {
      this.#change(Buffer.concat(held), 0, (body) => {
        this.#sendHeldHead(body.length);
        this.#out.add(body);
        done();
      });
      return;
    }
    copyInTurns(held, this.#heldBytes, this.#isWanted, (joined) => {
      this.#change(joined, 0, (body) => {
        this.#sendHeldHead(body.length);
        this.#out.sendLarge(body, this.#isWanted, done);
      });
    });
  }

  #newLine(): EventLine {
    return new EventLine({
      x: this.#x,
      plugins: this.#plugins,
      out: this.#out,
      onFailure: this.#fail,
      isWanted: this.#isWanted,
      onBusy: () => {
        this.#inner.source = null;
      },
      onWait: () => void this.flush(),
      onIdle: () => {
        const whenIdle = this.#whenIdle;
        if (whenIdle !== null) return whenIdle();
        this.#inner.source = this.#source;
        if (this.flush()) this.#source?.resume();
      },
    });
  }

  /** Takes plugins through a body, beginning with the one at `from`. */
  #change(body: Buffer, from: number, then: (changed: Buffer) => void): void {
    let changed = body;
    for (let i = from; i < this.#plugins.length; i++) {
      const plugin = this.#plugins[i]!;
      try {
        const made = plugin.responseBody?.(this.#x, changed) ?? changed;
        if (made instanceof Promise) {
          const goOn = (later: Buffer): void => (this.#isWanted() ? this.#change(later, i + 1, then) : undefined);
          made.then(goOn, (error: unknown) => (this.#isWanted() ? this.#fail(plugin, error) : undefined));
          return;
        }
        changed = made;
      } catch (error) {
        this.#fail(plugin, error);
        return;
      }
    }
    then(changed);
  }

  readonly #resume = (): void => (this.#isWanted() && !this.hasUnsent ? this.#source?.resume() : undefined);

  readonly #isWanted = (): boolean => !this.#hasFailed && this.#x.outcome === null;

  end(): void {
    if (this.#hasFailed) return;
    this.#out.end();
    this.#inner.end();
  }

  cut(reason: string, lastWords: string): void {
    this.#inner.cut(reason, lastWords);
  }

  #sendHeldHead(bytes: number): void {
    this.#held = null;
    const head = this.#head!;
    head.drop('content-length');
    head.setLength(bytes);
    this.#sendHead(head, true);
  }

  #sendHead(head: ResponseHead, hasBody: boolean): void {
    this.#out.isChunked = hasBody && head.isChunked && head.contentLength < 0;
    this.#x.isAnswerOut = true;
    this.#inner.head(head);
  }

  readonly #fail = (plugin: Plugin, error: unknown): void => {
    this.#hasFailed = true;
    this.#onFailure(this.#x, plugin, error);
  };
}
