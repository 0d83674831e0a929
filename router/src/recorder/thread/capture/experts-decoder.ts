import { mayBeNpy, readNpyHead } from '../../../kit/npy.ts';
import type { ExpertsForm } from '../../shared/experts-cutter.ts';

/** What is known of a tensor when all of it was read. */
export interface TensorFacts {
  readonly dtype: string | null;
  readonly shape: readonly number[] | null;
}

/** Reads a value of routed experts piece by piece. */
export interface ExpertsDecoder {
  /** @returns the tensor's own bytes, as many as are known now; valid until the next call */
  push(piece: Uint8Array): Uint8Array;
  /** @returns null: it is no such value */
  end(): TensorFacts | null;
}

export const decoderOf = (form: ExpertsForm): ExpertsDecoder =>
  form === 'list' ? new ListDecoder() : new Base64Decoder();

/** The longest header of a .npy file that is waited for. */
const MAX_HEADER_BYTES = 65_536;

const dtypes: Readonly<Record<string, string>> = {
  u1: 'uint8',
  i1: 'int8',
  u2: 'uint16',
  i2: 'int16',
  i4: 'int32',
  i8: 'int64',
};

/** base64 becomes text in parts of this size: longer ones would not be young garbage, which goes first. */
const TEXT_BYTES = 16_384;

/** base64 of raw numbers (SGLang), or of a .npy file (vLLM), whose header is taken off. */
class Base64Decoder implements ExpertsDecoder {
  #rest = '';
  /** The beginning, while it is not known whether it is a header; null afterwards. */
  #head: Buffer | null = Buffer.alloc(0);
  #facts: TensorFacts = { dtype: null, shape: null };
  /** Written over with each piece: what is large and short-lived would keep the collector busy. */
  #decoded: Buffer = Buffer.alloc(0);

  push(piece: Uint8Array): Uint8Array {
    const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    const enough = bytes.length + this.#rest.length;
    if (this.#decoded.length < enough) this.#decoded = Buffer.allocUnsafeSlow(enough);
    let length = 0;
    for (let at = 0; at < bytes.length; at += TEXT_BYTES) {
      // A JSON writer may escape the slash.
      const text = this.#rest + bytes.toString('latin1', at, at + TEXT_BYTES).replaceAll('\\', '');
      const whole = text.length - (text.length % 4);
      this.#rest = text.slice(whole);
      length += this.#decoded.write(text.slice(0, whole), length, 'base64');
    }
    return this.#behindHead(this.#decoded.subarray(0, length));
  }

  end(): TensorFacts | null {
    // base64 comes in groups of four; a header that never ended is no tensor either.
    const isWhole = this.#rest === '' && (this.#head === null || this.#head.length === 0);
    return isWhole ? this.#facts : null;
  }

  #behindHead(bytes: Buffer): Buffer {
    if (this.#head === null) return bytes;
    const all = this.#head.length === 0 ? bytes : Buffer.concat([this.#head, bytes]);
    const head = readNpyHead(all);
    if (head === null && mayBeNpy(all) && all.length < MAX_HEADER_BYTES) {
      this.#head = Buffer.from(all);
      return Buffer.alloc(0);
    }
    this.#head = null;
    if (head === null) return all;
    this.#facts = { dtype: dtypes[head.type] ?? head.type, shape: head.shape };
    return all.subarray(head.end);
  }
}

const MINUS = 0x2d;
const COMMA = 0x2c;
const OPEN = 0x5b;
const CLOSE = 0x5d;

/** Nested lists of whole numbers, as int32. */
class ListDecoder implements ExpertsDecoder {
  #depth = 0;
  /** By depth: how many entries the open list has so far, and how many each list there has. */
  readonly #counts: number[] = [];
  readonly #sizes: number[] = [];
  #isRagged = false;
  #isBroken = false;
  #number = 0;
  #digits = 0;
  #sign = 1;
  #numbers = new Int32Array(0);

  push(piece: Uint8Array): Uint8Array {
    const enough = Math.ceil(piece.length / 2) + 1;
    if (this.#numbers.length < enough) this.#numbers = new Int32Array(enough);
    const numbers = this.#numbers;
    let count = 0;
    for (const byte of piece) {
      if (byte >= 0x30 && byte <= 0x39) {
        this.#number = this.#number * 10 + byte - 0x30;
        this.#digits++;
        continue;
      }
      if (this.#digits > 0) {
        numbers[count++] = this.#sign * this.#number;
        this.#counts[this.#depth] = (this.#counts[this.#depth] ?? 0) + 1;
        [this.#number, this.#digits, this.#sign] = [0, 0, 1];
      }
      if (byte === OPEN) {
        this.#counts[++this.#depth] = 0;
      } else if (byte === CLOSE) this.#close();
      else if (byte === MINUS) this.#sign = -1;
      else if (byte !== COMMA && byte > 0x20) this.#isBroken = true;
    }
    return new Uint8Array(numbers.buffer, 0, 4 * count);
  }

  end(): TensorFacts | null {
    if (this.#isBroken || this.#depth !== 0) return null;
    return { dtype: 'int32', shape: this.#isRagged ? null : this.#sizes.slice(1) };
  }

  #close(): void {
    const size = this.#counts[this.#depth]!;
    this.#sizes[this.#depth] ??= size;
    if (this.#sizes[this.#depth] !== size) this.#isRagged = true;
    this.#depth--;
    this.#counts[this.#depth] = (this.#counts[this.#depth] ?? 0) + 1;
  }
}
