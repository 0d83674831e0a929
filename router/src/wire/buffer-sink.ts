import type { ResponseHead } from './response-head.ts';
import type { Sink, Source } from './sink.ts';

export interface BufferOptions {
  /** Payload beyond this is counted and dropped. */
  readonly maxBytes?: number;
  /** Payload that may wait in the buffer before the source is paused. */
  readonly maxWaitingBytes?: number;
  /** Called when there is a head, more payload, or the end. */
  readonly onChange?: () => void;
}

/** Keeps the payload of a response in memory, for requests of the router itself. */
export class BufferSink implements Sink {
  readonly takesFraming = false;
  readonly payloadObserver = null;
  readonly hasUnsent = false;
  source: Source | null = null;
  response: ResponseHead | null = null;
  /** Payload bytes received, kept or not. */
  bytes = 0;
  state: 'open' | 'complete' | 'cut' = 'open';
  readonly #maxBytes: number;
  readonly #maxWaitingBytes: number;
  readonly #onChange: () => void;
  #parts: Buffer[] = [];
  #waitingBytes = 0;

  constructor({ maxBytes = Infinity, maxWaitingBytes = Infinity, onChange = () => {} }: BufferOptions = {}) {
    this.#maxBytes = maxBytes;
    this.#maxWaitingBytes = maxWaitingBytes;
    this.#onChange = onChange;
  }

  /** The payload had more than `maxBytes`: nothing of it is kept. */
  get isTooLarge(): boolean {
    return this.bytes > this.#maxBytes;
  }

  /** Returns what is kept; a paused source resumes. */
  take(): Buffer[] {
    const parts = this.#parts;
    const wasFull = this.#waitingBytes > this.#maxWaitingBytes;
    this.#parts = [];
    this.#waitingBytes = 0;
    if (wasFull) this.source?.resume();
    return parts;
  }

  head(head: ResponseHead): void {
    this.response = head;
    this.#onChange();
  }

  body(bytes: Buffer, start: number, end: number): void {
    this.bytes += end - start;
    if (this.isTooLarge) this.#parts = [];
    else {
      this.#waitingBytes += end - start;
      this.#parts.push(Buffer.from(bytes.subarray(start, end)));
    }
  }

  flush(): boolean {
    this.#onChange();
    return this.#waitingBytes <= this.#maxWaitingBytes;
  }

  makeReady(done: () => void): void {
    done();
  }

  whenPassed(done: () => void): void {
    done();
  }

  takeBack(): boolean {
    return false;
  }

  end(): void {
    this.state = 'complete';
    this.#onChange();
  }

  cut(): void {
    this.state = 'cut';
    this.#onChange();
  }
}
