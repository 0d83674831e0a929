import type { Exchange } from '../exchange.ts';
import { copyInTurns } from '../kit/copy-slices.ts';
import { EventSplitter } from '../kit/sse.ts';
import { RouterError } from '../kit/errors.ts';
import { type Plugin, Refused } from '../plugin.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import { sendInParts } from '../wire/send-in-parts.ts';
import type { Sink, Source } from '../wire/sink.ts';
import type { Merging } from './merging.ts';
import { LARGE_BYTES } from './pd/meeting.ts';
import { heardSink } from './listening-sink.ts';

/** The largest answer body that is held for a plugin's `responseBody`. */
export const MAX_HELD_BYTES = 268_435_456;

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
  /** The first of `plugins`, if that is one of the router's own. */
  readonly #first: Merging | null;
  #head: ResponseHead | null = null;
  #events: EventSplitter | null = null;
  /** The whole body, while it is held for `responseBody`; null otherwise. */
  #held: Buffer[] | null = null;
  #heldBytes = 0;
  #out: Buffer[] = [];
  #isChunked = false;
  #hasFailed = false;

  constructor(x: Exchange, plugins: readonly Plugin[], onFailure: OnPluginFailure, first: Merging | null) {
    this.#x = x;
    this.#inner = x.sink;
    this.#plugins = plugins;
    this.#onFailure = onFailure;
    this.#first = first;
  }

  get source(): Source | null {
    return this.#inner.source;
  }

  set source(source: Source | null) {
    this.#inner.source = source;
  }

  head(head: ResponseHead): void {
    this.#head = head;
    this.#each((plugin) => plugin.responseHead?.(this.#x, head));
    if (this.#hasFailed) return;
    const hasBody = !head.hasNoBody(this.#x.head.method);
    if (hasBody && head.isEventStream && this.#plugins.some((p) => p.responseEvent)) {
      this.#events = new EventSplitter();
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
    const part = Buffer.from(bytes.subarray(start, end));
    if (this.#held !== null) {
      this.#heldBytes += part.length;
      if (this.#heldBytes > MAX_HELD_BYTES) this.#fail(this.#plugins[0]!, 'the answer is too large to be held');
      else this.#held.push(part);
    } else if (this.#events === null) this.#out.push(part);
    else for (const event of this.#events.push(part)) this.#out.push(this.#changeEvent(event));
  }

  flush(): boolean {
    if (this.#held !== null || this.#hasFailed) return true;
    this.#send();
    return this.#inner.flush();
  }

  /** Plugins may take their time with a body that is held: all of them are through before the end. */
  makeReady(done: () => void): void {
    const held = this.#held;
    if (held === null || this.#hasFailed) return done();
    if (this.#heldBytes + (this.#first?.bytes ?? 0) <= LARGE_BYTES) {
      this.#change(Buffer.concat(held), 0, (body) => {
        this.#sendHeldHead(body.length);
        this.#out.push(body);
        done();
      });
      return;
    }
    copyInTurns(held, this.#heldBytes, this.#isWanted, (joined) => {
      const send = (body: Buffer): void => {
        this.#sendHeldHead(body.length);
        sendInParts(this.#inner, body, this.#isWanted, done);
      };
      if (this.#first === null) this.#change(joined, 0, send);
      else void this.#merge(this.#first, joined, (body) => this.#change(body, 1, send));
    });
  }

  async #merge(merging: Merging, body: Buffer, then: (merged: Buffer) => void): Promise<void> {
    let merged: Buffer;
    try {
      merged = await merging.largeBody(body);
    } catch (error) {
      const { message } = error as Error;
      if (this.#isWanted())
        this.#fail(merging, new Refused(new RouterError('internal_error', `Its answer: ${message}`)));
      return;
    }
    if (this.#isWanted()) then(merged);
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

  readonly #isWanted = (): boolean => !this.#hasFailed && this.#x.outcome === null;

  end(): void {
    if (this.#hasFailed) return;
    if (this.#events !== null) {
      const rest = this.#events.end();
      if (rest.length > 0) this.#out.push(this.#changeEvent(rest));
    }
    if (this.#hasFailed) return;
    this.#send();
    if (this.#isChunked) this.#pass(Buffer.from('0\r\n\r\n'));
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
    this.#isChunked = hasBody && head.isChunked && head.contentLength < 0 && this.#inner.takesFraming;
    this.#x.isAnswerOut = true;
    this.#inner.head(head);
  }

  #send(): void {
    const body = Buffer.concat(this.#out);
    this.#out = [];
    if (body.length === 0 || this.#hasFailed) return;
    this.#pass(
      this.#isChunked
        ? Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from('\r\n')])
        : body,
    );
  }

  #pass(bytes: Buffer): void {
    this.#inner.body(bytes, 0, bytes.length);
  }

  #changeEvent(event: Buffer): Buffer {
    let result = event;
    this.#each((plugin) => {
      result = plugin.responseEvent?.(this.#x, result) ?? result;
    });
    return result;
  }

  #each(run: (plugin: Plugin) => void): void {
    for (const plugin of this.#plugins) {
      if (this.#hasFailed) return;
      try {
        run(plugin);
      } catch (error) {
        this.#fail(plugin, error);
      }
    }
  }

  #fail(plugin: Plugin, error: unknown): void {
    this.#hasFailed = true;
    this.#onFailure(this.#x, plugin, error);
  }
}
