import { ChunkedReader, type TakePart } from './chunked.ts';

/** For few bytes a view costs more than they do. */
const FEW_BYTES = 32;
/** Where parts are laid together: one for the process, as it is used up before the next read. */
let scratch = Buffer.allocUnsafeSlow(65_536);

/** A chunked body without its framing, read by read: chunks may be of a byte each, pieces of a body may not. */
export class ChunkedPayload {
  /** Parts in the present read. */
  parts = 0;
  readonly chunks: ChunkedReader;
  #bytes: Buffer = scratch;
  #start = 0;
  #size = 0;

  constructor() {
    this.chunks = new ChunkedReader(false, this.#gather);
  }

  /** @returns false when the body is malformed; `payload` is what came before the fault */
  read(bytes: Buffer, start: number, end: number): boolean {
    this.parts = 0;
    this.#bytes = bytes;
    return this.chunks.read(bytes, start, end);
  }

  /** What the present read brought, valid until the next; null: nothing. */
  get payload(): Buffer | null {
    if (this.parts === 0) return null;
    return this.parts === 1
      ? this.#bytes.subarray(this.#start, this.#start + this.#size)
      : scratch.subarray(0, this.#size);
  }

  readonly #gather: TakePart = (bytes, start, end) => {
    const count = end - start;
    if (this.parts++ === 0) {
      this.#start = start;
      this.#size = count;
      return;
    }
    if (this.parts === 2) {
      // Payload is never more than the read that it is in.
      if (bytes.length > scratch.length) scratch = Buffer.allocUnsafeSlow(bytes.length);
      scratch.set(bytes.subarray(this.#start, this.#start + this.#size));
    }
    if (count < FEW_BYTES) for (let i = 0; i < count; i++) scratch[this.#size + i] = bytes[start + i]!;
    else scratch.set(bytes.subarray(start, end), this.#size);
    this.#size += count;
  };
}
