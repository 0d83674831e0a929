import type { Exchange } from '../exchange.ts';
import type { Plugin } from '../plugin.ts';
import { PassingSink } from '../wire/passing-sink.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink, Source } from '../wire/sink.ts';
import { Changes, type OnFailure, type Pieces } from './changes.ts';
import { EventLine, MAX_HELD_BYTES } from './event-line.ts';
import { PayloadOut } from './payload-out.ts';
import { ReadShare } from './read-share.ts';
import { ValuesAside } from './values-aside.ts';

/** @returns `sink`, after the plugins that change the response, if there are any */
export function responseSink(x: Exchange, all: readonly Plugin[], onFailure: OnFailure, sink: Sink): Sink {
  const changing = all.filter((plugin) => plugin.responseHead ?? plugin.responseEvent ?? plugin.responseBody);
  const innermost = changing.filter(({ isInnermost }) => isInnermost);
  const others = changing.filter(({ isInnermost }) => !isInnermost);
  return changing.length === 0 ? sink : new ResponseSink(x, sink, [...innermost, ...others], onFailure);
}

/** Passes the events of a response, or its whole body, through plugins, and sends the result with new framing. */
class ResponseSink extends PassingSink {
  readonly #x: Exchange;
  readonly #plugins: readonly Plugin[];
  readonly #onFailure: OnFailure;
  readonly #changes: Changes;
  readonly #out: PayloadOut;
  readonly #share = new ReadShare();
  #source: Source | null = null;
  #head: ResponseHead | null = null;
  #events: EventLine | null = null;
  /** Called when the last event, or a value that begins, was processed. */
  #whenIdle: (() => void) | null = null;
  /** null: no values are cut out. */
  #values: ValuesAside | null = null;
  /** A value that begins waits for the events before it. */
  #whenEventsIdle: (() => void) | null = null;
  /** The whole body, while it is held for `responseBody`; null otherwise. */
  #held: Buffer[] | null = null;
  #heldBytes = 0;
  #hasFailed = false;

  constructor(x: Exchange, inner: Sink, plugins: readonly Plugin[], onFailure: OnFailure) {
    super(inner);
    this.#x = x;
    this.#plugins = plugins;
    this.#onFailure = onFailure;
    this.#changes = new Changes(x, plugins, this.#isWanted, this.#fail);
    this.#out = new PayloadOut(inner);
  }

  override get takesFraming(): boolean {
    return false;
  }

  override get source(): Source | null {
    return this.#source;
  }

  override set source(source: Source | null) {
    this.#source = source;
    // While an event is processed, the engine stays paused.
    if (!this.#isBusy) this.inner.source = source;
  }

  override get hasUnsent(): boolean {
    return this.#isBusy || super.hasUnsent;
  }

  get #isBusy(): boolean {
    return this.#events?.isBusy === true || this.#values?.isBusy === true;
  }

  override head(head: ResponseHead): void {
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
      head.setLength(null);
    } else if (hasBody && !head.isEventStream && this.#plugins.some((p) => p.responseBody)) {
      this.#held = [];
    }
    if (this.#events !== null || this.#held !== null) this.#values = this.#valuesOf(head);
    if (this.#held === null) this.#out.head(this.#x, head);
  }

  override body(bytes: Buffer, start: number, end: number): void {
    if (this.#hasFailed) return;
    if (this.#values === null) return this.#take(bytes, start, end);
    this.#share.add(end - start);
    this.#values.push(bytes, start, end);
  }

  readonly #take = (bytes: Buffer, start: number, end: number): void => {
    if (this.#hasFailed) return;
    if (this.#events !== null) {
      if (this.#values === null) this.#share.add(end - start);
      this.#events.push(bytes, start, end);
      return;
    }
    const part = Buffer.from(bytes.subarray(start, end));
    if (this.#held !== null) {
      this.#heldBytes += part.length;
      if (this.#heldBytes > MAX_HELD_BYTES) this.#fail(this.#plugins[0]!, 'the answer is too large to be held');
      else this.#held.push(part);
    } else this.#out.add(part);
  };

  override flush(): boolean {
    if (this.#hasFailed) return true;
    const isBusy = this.#isBusy;
    if (this.#held !== null && !this.#out.hasHead) return !isBusy;
    // If no event was sent before, a failure can still be an error status.
    if (isBusy && this.#out.isEmpty) return false;
    this.#out.send();
    return this.inner.flush() && !isBusy && !this.#share.isUsedUp(this.#resume);
  }

  /** Plugins may process a held body, or events, asynchronously: all of them are done before the end. */
  override makeReady(isReady: () => void): void {
    if (this.#hasFailed) return isReady();
    if (this.#values?.isBusy === true) {
      this.#whenIdle = () => this.makeReady(isReady);
      return;
    }
    const done = (): void => {
      // A sink behind this one needs all of the response before it makes itself ready.
      this.#out.end();
      super.makeReady(isReady);
    };
    if (this.#events !== null) {
      this.#whenIdle = done;
      this.#events.end();
      if (this.#events.isBusy) this.flush();
      else if (!this.#hasFailed) done();
      return;
    }
    if (this.#held === null) return done();
    const changes = this.#changes;
    const sent = changes.next(changes.change('responseBody', this.#soFar), (body) =>
      changes.put(this.#out, this.#heldBody(body)),
    );
    void changes.next(sent, done);
  }

  /** Only if a single plugin changes the response and cuts values out of it. */
  #valuesOf(head: ResponseHead): ValuesAside | null {
    const changing = this.#plugins.filter((plugin) => plugin.responseEvent ?? plugin.responseBody);
    const plugin = changing[0]!;
    if (changing.length > 1 || plugin.cutValues === undefined || plugin.beforeValue === undefined) return null;
    try {
      return new ValuesAside((taker) => plugin.cutValues!(this.#x, head, taker), {
        out: this.#out,
        take: this.#take,
        changedSoFar: (then) => this.#changedSoFar(then),
        begin: () => this.#sendBegunHead(),
        onBusy: () => {
          this.inner.source = null;
        },
        onIdle: this.#goOn,
      });
    } catch (error) {
      this.#fail(plugin, error);
      return null;
    }
  }

  #changedSoFar(then: (made: Buffer) => void): void {
    if (this.#events?.isBusy === true) {
      this.#whenEventsIdle = () => this.#changedSoFar(then);
      return;
    }
    void this.#changes.next(this.#changes.change('beforeValue', this.#soFar), then);
  }

  /** What came of the present event, or of the body. */
  get #soFar(): Pieces {
    return this.#events?.begun ?? { pieces: this.#held!, bytes: this.#heldBytes };
  }

  /** The part of a held body that is sent after its head. */
  #heldBody(body: Buffer): Buffer {
    const whole = this.#values?.whole(body) ?? body;
    this.#held = null;
    if (!this.#out.hasHead) {
      this.#head!.setLength(whole.length);
      this.#out.head(this.#x, this.#head!);
    }
    return whole;
  }

  /** The head of a body that is sent before it is complete, so its length is not known. */
  #sendBegunHead(): void {
    if (this.#out.hasHead) return;
    this.#head!.setLength(null);
    this.#out.head(this.#x, this.#head!);
  }

  /** All events, or a value, were processed: the engine is read again. */
  readonly #goOn = (): void => {
    if (this.#hasFailed) return;
    const then = this.#whenEventsIdle ?? this.#whenIdle;
    if (this.#whenEventsIdle !== null) this.#whenEventsIdle = null;
    else this.#whenIdle = null;
    if (then !== null) return then();
    this.inner.source = this.#source;
    if (this.flush()) this.#source?.resume();
  };

  #newLine(): EventLine {
    return new EventLine({
      changes: this.#changes,
      onTooLarge: () => this.#fail(this.#plugins[0]!, 'an event of the answer is too large to be held'),
      onBusy: () => {
        this.inner.source = null;
      },
      onWait: () => void this.flush(),
      put: (event) => this.#changes.put(this.#out, this.#values?.whole(event) ?? event),
      onIdle: this.#goOn,
    });
  }

  readonly #resume = (): void => (this.#isWanted() && !this.#isBusy ? this.#source?.resume() : undefined);

  readonly #isWanted = (): boolean => !this.#hasFailed && this.#x.outcome === null;

  override end(): void {
    if (!this.#hasFailed) super.end();
  }

  readonly #fail = (plugin: Plugin, error: unknown): void => {
    this.#hasFailed = true;
    this.#onFailure(plugin, error);
  };
}
