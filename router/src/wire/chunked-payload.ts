import { ChunkedReader, type TakePart } from './chunked.ts';

/** Fewer bytes are copied one by one: a view costs more. */
const FEW_BYTES = 32;
/** The parts of a read are joined here: one buffer for the process, as it is used up before the next read. */
let scratch = Buffer.allocUnsafeSlow(65_536);

/** The payload of a chunked body, in one piece for each read, because chunks may have a byte each. */
export class ChunkedPayload {
  parts = 0;
  readonly chunks: ChunkedReader;
  #bytes: Buffer = scratch;
  #start = 0;
  #size = 0;

  constructor() {
    this.chunks = new ChunkedReader(false, this.#gather);
  }

  /** @returns false: the body is malformed, and `payload` has what came before the fault */
  read(bytes: Buffer, start: number, end: number): boolean {
    this.parts = 0;
    this.#bytes = bytes;
    return this.chunks.read(bytes, start, end);
  }

  /** The payload of this read, valid until the next one; null: none. */
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
      // Payload is never longer than its read.
      if (bytes.length > scratch.length) scratch = Buffer.allocUnsafeSlow(bytes.length);
      scratch.set(bytes.subarray(this.#start, this.#start + this.#size));
    }
    if (count < FEW_BYTES) for (let i = 0; i < count; i++) scratch[this.#size + i] = bytes[start + i]!;
    else scratch.set(bytes.subarray(start, end), this.#size);
    this.#size += count;
  };
}
