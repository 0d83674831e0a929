import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink, Source } from '../wire/sink.ts';

/** A whole answer, held in memory. */
export interface Answer {
  readonly status: number;
  readonly head: ResponseHead;
  readonly body: Buffer;
}

/** Collects an answer for the router's own use. `answer` rejects when it breaks off or outgrows `maxBytes`. */
export class MemorySink implements Sink {
  readonly takesFraming = false;
  source: Source | null = null;
  readonly answer: Promise<Answer>;
  readonly #maxBytes: number;
  readonly #parts: Buffer[] = [];
  #bytes = 0;
  #head: ResponseHead | null = null;
  #resolve!: (answer: Answer) => void;
  #reject!: (error: Error) => void;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Whoever asked may look at the answer only later.
    this.answer.catch(() => {});
  }

  head(head: ResponseHead): void {
    this.#head = head;
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    this.#bytes += end - start;
    if (this.#bytes <= this.#maxBytes) this.#parts.push(Buffer.from(bytes.subarray(start, end)));
    else this.#parts.length = 0;
  }

  flush(): boolean {
    return true;
  }

  end(): void {
    if (this.#bytes > this.#maxBytes) this.#reject(new Error(`the answer is larger than ${this.#maxBytes} bytes`));
    else this.#resolve({ status: this.#head!.status, head: this.#head!, body: Buffer.concat(this.#parts) });
  }

  cut(reason: string): void {
    this.#reject(new Error(`the answer broke off: ${reason}`));
  }
}
