import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink, Source } from '../wire/sink.ts';

/** Payload that may wait for its reader before the engine is paused. */
const MAX_WAITING_BYTES = 65_536;

/** Gives an answer to a reader inside the router as it comes: its head as a promise, its payload as a web stream. */
export class StreamSink implements Sink {
  readonly takesFraming = false;
  source: Source | null = null;
  readonly headCame: Promise<ResponseHead>;
  readonly payload: ReadableStream<Uint8Array>;
  #resolveHead!: (head: ResponseHead) => void;
  #rejectHead!: (error: Error) => void;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #isCancelled = false;

  /** @param onCancel the reader lost interest: stop the exchange. */
  constructor(onCancel: () => void) {
    this.headCame = new Promise((resolve, reject) => {
      this.#resolveHead = resolve;
      this.#rejectHead = reject;
    });
    // A reader that only takes the stream hears of a cut there; it need not handle it twice.
    this.headCame.catch(() => {});
    this.payload = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => this.source?.resume(),
        cancel: () => {
          this.#isCancelled = true;
          onCancel();
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MAX_WAITING_BYTES }),
    );
  }

  head(head: ResponseHead): void {
    this.#resolveHead(head);
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (!this.#isCancelled) this.#controller.enqueue(Buffer.from(bytes.subarray(start, end)));
  }

  flush(): boolean {
    return this.#isCancelled || (this.#controller.desiredSize ?? 0) > 0;
  }

  end(): void {
    if (!this.#isCancelled) this.#controller.close();
  }

  cut(reason: string): void {
    const error = new Error(`the answer broke off: ${reason}`);
    this.#rejectHead(error);
    if (!this.#isCancelled) this.#controller.error(error);
  }
}
