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
    else for (const event of this.#events.push(part)) this.#out.push(this.#transform(event, 'responseEvent'));
  }

  flush(): boolean {
    if (this.#held !== null || this.#hasFailed) return true;
    this.#send();
    return this.#inner.flush();
  }

  makeReady(done: () => void): void {
    const held = this.#held;
    if (held === null || this.#hasFailed || this.#heldBytes + (this.#first?.bytes ?? 0) <= LARGE_BYTES) {
      done();
      return;
    }
    copyInTurns(held, this.#heldBytes, this.#isWanted, (body) => void this.#sendLarge(body, done));
  }

  /** A large body that is held: all of it is out before the end. */
  async #sendLarge(joined: Buffer, done: () => void): Promise<void> {
    let body = joined;
    if (this.#first !== null) {
      try {
        body = await this.#first.largeBody(body);
      } catch (error) {
        const { message } = error as Error;
        const failure = new Refused(new RouterError('internal_error', `Its answer: ${message}`));
        if (this.#isWanted()) this.#fail(this.#first, failure);
      }
      if (!this.#isWanted()) return;
    }
    body = this.#transform(body, 'responseBody', this.#first);
    if (this.#hasFailed) return;
    this.#held = null;
    this.#sendHeldHead(body.length);
    sendInParts(this.#inner, body, this.#isWanted, done);
  }

  readonly #isWanted = (): boolean => !this.#hasFailed && this.#x.outcome === null;

  end(): void {
    if (this.#hasFailed) return;
    if (this.#held !== null) {
      const body = this.#transform(Buffer.concat(this.#held), 'responseBody');
      if (this.#hasFailed) return;
      this.#sendHeldHead(body.length);
      this.#out.push(body);
    } else if (this.#events !== null) {
      const rest = this.#events.end();
      if (rest.length > 0) this.#out.push(this.#transform(rest, 'responseEvent'));
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

  #transform(bytes: Buffer, phase: 'responseEvent' | 'responseBody', but: Plugin | null = null): Buffer {
    let result = bytes;
    this.#each((plugin) => {
      if (plugin !== but) result = plugin[phase]?.(this.#x, result) ?? result;
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
