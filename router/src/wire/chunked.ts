import { CR, HEX_VALUE, LF } from '../kit/bytes.ts';

const SEMICOLON = 59;

/** Chunk extensions and trailers are not forwarded; more bytes of them in one message are refused. */
export const MAX_IGNORED_BYTES = 16_384;

/** They are checked although they are not forwarded: parsers that disagree about their content disagree about their end. */
const EXTENSIONS =
  /^(?:;[\w!#$%&'*+.^`|~-]+(?:=(?:[\w!#$%&'*+.^`|~-]+|"(?:[\t !#-[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"))?)+$/;
const TRAILER_LINE = /^[\w!#$%&'*+.^`|~-]+:[\t -~\x80-\xff]*$/;
/** Fields that trailers must not have (RFC 9110 section 6.5.1): a parser that merges trailers into the head would use them for framing. */
const FRAMING_LINE = /^(?:content-length|transfer-encoding):/i;

const SIZE = 0;
const EXTENSION = 1;
const SIZE_LF = 2;
const DATA = 3;
const DATA_CR = 4;
const DATA_LF = 5;
const TRAILER_START = 6;
const TRAILER = 7;
const TRAILER_LF = 8;
const END_LF = 9;
const DONE = 10;

/** Gets the parts of a chunked body: `bytes[start, end)`, valid during the call only. */
export type TakePart = (bytes: Buffer, start: number, end: number) => void;

/**
 * Parses a chunked body (RFC 9112 section 7.1), however its bytes are split. With `keepsFraming` everything but chunk extensions and
 * trailers is passed to `take`, so that a response keeps the chunk lines of its engine; without it only the payload.
 */
export class ChunkedReader {
  /** Index after the message's last byte in the read that ended it; -1 before. */
  end = -1;
  chunks = 0;
  payloadBytes = 0;
  /** '' while the body is well-formed. */
  refusal = '';
  readonly #keepsFraming: boolean;
  readonly #take: TakePart;
  readonly #refusesFraming: boolean;
  readonly #observe: TakePart | null;
  #state = SIZE;
  #size = 0;
  #digits = 0;
  #ignored = 0;
  /** The present chunk extensions or trailer line. */
  #line = '';
  /** The last four payload bytes, to detect the end of an event. */
  #tail = 0;

  /**
   * @param refusesFraming refuses trailers that frame a message, as in requests; those of responses are dropped like other trailers
   * @param observe with `keepsFraming`: gets the payload too, before `take` gets the same bytes; null: nothing does
   */
  constructor(keepsFraming: boolean, take: TakePart, refusesFraming = true, observe: TakePart | null = null) {
    this.#keepsFraming = keepsFraming;
    this.#take = take;
    this.#refusesFraming = refusesFraming;
    this.#observe = observe;
  }

  /** Another chunk may be inserted here. */
  get isBetweenChunks(): boolean {
    return this.#state === SIZE && this.#digits === 0;
  }

  /** The payload so far ends with an empty line, as every event does. */
  get isBetweenEvents(): boolean {
    const two = this.#tail & 0xffff;
    return this.payloadBytes === 0 || two === 0x0a0a || two === 0x0d0d || this.#tail === 0x0d0a0d0a;
  }

  /** @returns false: the body is malformed; bytes before the fault were passed on */
  read(bytes: Buffer, start: number, end: number): boolean {
    const keeps = this.#keepsFraming;
    let from = start;
    let i = start;
    let state = this.#state;
    let refusal = '';
    while (i < end) {
      if (state === DATA) {
        const left = this.#size;
        const available = end - i;
        const taken = left < available ? left : available;
        if (!keeps) this.#take(bytes, i, i + taken);
        else if (this.#observe !== null) this.#observe(bytes, i, i + taken);
        i += taken;
        this.payloadBytes += taken;
        this.#remember(bytes, i, taken);
        if (taken === left) state = DATA_CR;
        else this.#size = left - taken;
        continue;
      }
      const byte = bytes[i]!;
      switch (state) {
        case SIZE: {
          const digit = HEX_VALUE[byte]!;
          if (digit < 16) {
            if (++this.#digits > 12) refusal = 'a chunk size that is too large';
            else this.#size = this.#digits === 1 ? digit : this.#size * 16 + digit;
          } else if (this.#digits === 0) refusal = 'a chunk without a size';
          else if (byte === CR) {
            state = SIZE_LF;
          } else if (byte === SEMICOLON) {
            if (keeps && i > from) this.#take(bytes, from, i);
            from = i + 1;
            this.#line = ';';
            state = EXTENSION;
          } else refusal = 'a malformed chunk size';
          break;
        }
        case EXTENSION:
          from = i;
          if (byte === CR && EXTENSIONS.test(this.#line)) state = SIZE_LF;
          else if (!this.#ignore(byte)) refusal = 'a malformed or too long chunk extension';
          else from = i + 1;
          break;
        case SIZE_LF:
          if (byte !== LF) refusal = 'a chunk size that does not end in CRLF';
          else {
            this.chunks++;
            state = this.#size === 0 ? TRAILER_START : DATA;
          }
          break;
        case DATA_CR:
          if (byte !== CR) refusal = 'a chunk that is longer than its size';
          else state = DATA_LF;
          break;
        case DATA_LF:
          if (byte !== LF) refusal = 'a chunk that does not end in CRLF';
          else {
            this.#digits = 0;
            state = SIZE;
          }
          break;
        case TRAILER_START:
          if (byte === CR) state = END_LF;
          else {
            if (keeps && i > from) this.#take(bytes, from, i);
            from = i + 1;
            this.#line = '';
            if (this.#ignore(byte)) state = TRAILER;
            else refusal = 'a malformed trailer';
          }
          break;
        case TRAILER:
          from = i + 1;
          if (byte === CR && this.#isTrailer(this.#line)) state = TRAILER_LF;
          else if (!this.#ignore(byte)) refusal = 'a malformed or too long trailer';
          break;
        case TRAILER_LF:
          from = i + 1;
          if (byte !== LF) refusal = 'a trailer line that does not end in CRLF';
          else state = TRAILER_START;
          break;
        case END_LF:
          if (byte !== LF) refusal = 'a body whose end is not CRLF';
          else {
            state = DONE;
            this.end = i + 1;
          }
          break;
      }
      if (refusal !== '') break;
      i++;
      if (state === DONE) break;
    }
    this.#state = state;
    if (keeps && i > from) this.#take(bytes, from, i);
    this.refusal = refusal;
    return refusal === '';
  }

  #isTrailer(line: string): boolean {
    return TRAILER_LINE.test(line) && !(this.#refusesFraming && FRAMING_LINE.test(line));
  }

  /** Collects a line that is not forwarded, to check it. @returns false: the line is invalid */
  #ignore(byte: number): boolean {
    if (byte === CR || byte === LF || ++this.#ignored > MAX_IGNORED_BYTES) return false;
    this.#line += String.fromCharCode(byte);
    return true;
  }

  #remember(bytes: Uint8Array, end: number, count: number): void {
    let tail = this.#tail;
    for (let k = end - (count < 4 ? count : 4); k < end; k++) tail = (tail << 8) | bytes[k]!;
    this.#tail = tail;
  }
}

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
