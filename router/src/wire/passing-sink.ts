import type { TakePart } from './chunked.ts';
import type { ResponseHead } from './response-head.ts';
import type { Sink, Source } from './sink.ts';

/** Passes a response on to another sink as it comes. Sinks that stand before another one override what they change. */
export class PassingSink implements Sink {
  protected readonly inner: Sink;

  constructor(inner: Sink) {
    this.inner = inner;
  }

  get takesFraming(): boolean {
    return this.inner.takesFraming;
  }

  get payloadObserver(): TakePart | null {
    return this.inner.payloadObserver;
  }

  get source(): Source | null {
    return this.inner.source;
  }

  set source(source: Source | null) {
    this.inner.source = source;
  }

  get hasUnsent(): boolean {
    return this.inner.hasUnsent;
  }

  head(head: ResponseHead): void {
    this.inner.head(head);
  }

  body(bytes: Buffer, start: number, end: number): void {
    this.inner.body(bytes, start, end);
  }

  flush(): boolean {
    return this.inner.flush();
  }

  makeReady(done: () => void): void {
    this.inner.makeReady(done);
  }

  whenPassed(done: () => void): void {
    this.inner.whenPassed(done);
  }

  end(): void {
    this.inner.end();
  }

  takeBack(): boolean {
    return this.inner.takeBack();
  }

  cut(reason: string, finalEvent: string): void {
    this.inner.cut(reason, finalEvent);
  }
}
