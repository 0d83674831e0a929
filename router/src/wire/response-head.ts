import { CR, IS_VALUE, LF, SP } from '../kit/bytes.ts';
import {
  BAD,
  CONNECTION,
  CONTENT_LENGTH,
  CONTENT_TYPE,
  HOP,
  Head,
  INCOMPLETE,
  REQUEST_ID,
  TRANSFER_ENCODING,
  UPGRADE,
  ascii,
  field,
  isChunkedWord,
  readField,
  readLength,
  spells,
} from './fields.ts';
import { MAX_FIELDS, MAX_HEAD_BYTES } from './request-head.ts';

const HTTP_1 = ascii('HTTP/1.');
const EVENT_STREAM = ascii('text/event-stream');

/** The head of an engine's response (RFC 9112 sections 4 and 6); `BAD` if two parsers could frame it differently. */
export class ResponseHead extends Head {
  status = 0;
  /** The engine's status code and reason, for example `200 OK`. */
  statusText = '';
  isEventStream = false;
  /** For logs; clients do not see it. */
  refusal = '';

  /** As `RequestHead.read`. */
  read(bytes: Buffer, start: number, end: number): number {
    // Anything but HTTP/1 is refused at its first wrong byte: other protocols may send no LF, and the attempt would wait for its timeout.
    for (let i = 0; i < 7 && start + i < end; i++) {
      if (bytes[start + i] !== HTTP_1[i]) return this.#refuse('a status line without HTTP/1');
    }
    const lf = lineEndOf(bytes, start, end);
    if (lf < 0 || lf >= end) return this.#incomplete(start, end);
    // "HTTP/1.x NNN" and CRLF; the reason phrase may be empty, and its space too (some servers leave it out).
    if (bytes[lf - 1] !== CR || lf - start < 13) return this.#refuse('a status line that does not end in CRLF');
    const minor = bytes[start + 7]! - 48;
    this.status = readLength(bytes, start + 9, start + 12);
    const isWellFormed = bytes[start + 8] === SP && (lf - start === 13 || bytes[start + 12] === SP);
    if ((minor !== 0 && minor !== 1) || this.status < 100 || !isWellFormed) {
      return this.#refuse('a malformed status line');
    }
    for (let i = start + 12; i < lf - 1; i++) {
      if (IS_VALUE[bytes[i]!] === 0) return this.#refuse('a control character in the status line');
    }
    if (lf + 1 - start > MAX_HEAD_BYTES) return this.#refuse('a head that is too large');
    this.isLast = minor === 0;
    let at = lf + 1;
    let connection = '';
    for (let count = 0; ; count++) {
      if (at >= end) return this.#incomplete(start, end);
      if (bytes[at] === CR) {
        if (at + 1 >= end) return this.#incomplete(start, end);
        if (bytes[at + 1] === LF) break;
      }
      const next = readField(bytes, at, end);
      if (next === INCOMPLETE) return this.#incomplete(start, end);
      if (next === BAD) return this.#refuse(field.refusal);
      if (count === MAX_FIELDS || next - start > MAX_HEAD_BYTES) return this.#refuse('a head that is too large');
      if (field.kind !== 0) {
        const problem = this.#note(bytes, start, at, next);
        if (problem !== '') return this.#refuse(problem);
        if (field.kind === CONNECTION) connection += `,${bytes.toString('latin1', field.valueStart, field.valueEnd)}`;
      }
      at = next;
    }
    this.raw = bytes.toString('latin1', start, at + 2);
    this.fieldsStart = lf + 1 - start;
    // The space is required, also without a reason phrase (RFC 9112 section 4).
    this.statusText = lf - start === 13 ? `${this.status} ` : this.raw.slice(9, lf - 1 - start);
    if (this.isChunked && this.contentLength >= 0) {
      return this.#refuse('both Content-Length and Transfer-Encoding');
    }
    // RFC 9110 section 15.2; llhttp and others differ on where such a message ends.
    if (this.status < 200 && (this.isChunked || this.contentLength > 0))
      return this.#refuse('a body in an interim answer');
    // A client that follows it would wait for bytes, or take them from the next response (RFC 9110 section 8.6 forbids it).
    if (this.status === 204 && this.contentLength >= 0) this.drop('content-length');
    if (connection !== '' && !this.dropNamed(connection)) return this.#refuse('a Connection that names its framing');
    return at + 2;
  }

  /** The status or the method rules out a body (RFC 9112 section 6.3). */
  hasNoBody(method: string): boolean {
    return method === 'HEAD' || this.status === 204 || this.status === 304 || this.status < 200;
  }

  #note(bytes: Buffer, start: number, lineStart: number, lineEnd: number): string {
    const { kind, valueStart, valueEnd } = field;
    switch (kind) {
      case CONTENT_LENGTH: {
        const length = readLength(bytes, valueStart, valueEnd);
        if (length < 0) return 'a Content-Length that is not a number';
        if (this.contentLength >= 0) return 'more than one Content-Length';
        this.contentLength = length;
        return '';
      }
      case TRANSFER_ENCODING:
        if (this.isChunked || !isChunkedWord(bytes, valueStart, lineEnd - 2)) return 'an unknown Transfer-Encoding';
        this.isChunked = true;
        break;
      case CONTENT_TYPE:
        this.isEventStream = spells(bytes, valueStart, Math.min(valueEnd, valueStart + 17), EVENT_STREAM);
        return '';
      case REQUEST_ID:
        this.requestId = bytes.toString('latin1', valueStart, valueEnd);
        return '';
      case CONNECTION:
      case UPGRADE:
      case HOP:
        break;
      default:
        return '';
    }
    this.dropLine(lineStart - start, lineEnd - start);
    return '';
  }

  #incomplete(start: number, end: number): number {
    return end - start > MAX_HEAD_BYTES + 2 ? this.#refuse('a head that is too large') : INCOMPLETE;
  }

  #refuse(refusal: string): number {
    this.refusal = refusal;
    return BAD;
  }
}

/** Index of the LF, which a status line mostly has soon: a search by Node costs more (benchmark `json-2k`). */
function lineEndOf(bytes: Buffer, start: number, end: number): number {
  const near = Math.min(end, start + 32);
  for (let i = start; i < near; i++) if (bytes[i] === LF) return i;
  return bytes.indexOf(LF, near);
}

/** A head of the router's own. @param fields lines without framing, each with CRLF */
export function ownHead(status: number, statusText: string, fields: string, bodyBytes: number): ResponseHead {
  const head = new ResponseHead();
  head.status = status;
  head.statusText = `${status} ${statusText}`;
  const start = `HTTP/1.1 ${head.statusText}\r\n`;
  head.fieldsStart = start.length;
  head.contentLength = bodyBytes;
  head.raw = `${start}${fields}content-length: ${bodyBytes}\r\n\r\n`;
  return head;
}

/** For a response of unknown length: chunked, or ended by closing the connection. */
export function ownStreamHead(status: number, statusText: string, fields: string, isChunked: boolean): ResponseHead {
  const head = ownHead(status, statusText, fields, 0);
  head.contentLength = -1;
  head.isChunked = isChunked;
  head.raw = head.raw.replace(/content-length: 0\r\n\r\n$/, '\r\n');
  return head;
}
