import { METHODS } from 'node:http';
import { COLON, CR, IS_HOST, IS_TARGET, IS_TOKEN, LF, SP } from '../kit/bytes.ts';
import {
  API_KEY,
  AUTHORIZATION,
  BAD,
  CONNECTION,
  CONTENT_LENGTH,
  EXPECT,
  HOP,
  HOST,
  Head,
  INCOMPLETE,
  REQUEST_ID,
  SESSION_END,
  TIMEOUT,
  TRANSFER_ENCODING,
  UPGRADE,
  ascii,
  field,
  isChunkedWord,
  readField,
  readLength,
} from './fields.ts';

/** Limits of a head in bytes and lines, and of its target in characters: beyond them 431, 431 and 414. */
export const MAX_HEAD_BYTES = 65_536;
export const MAX_FIELDS = 200;
export const MAX_TARGET_BYTES = 16_384;
/** A longer request line has a target that is too long. */
export const MAX_LINE_BYTES: number = MAX_TARGET_BYTES + 64;

/** In place of the position of a line: absent, or more than one. */
export const NONE = -1;
export const SEVERAL = -2;

const methods = new Set(METHODS);

const OTHER_MAJOR = 2;
const MALFORMED = 3;
const HTTP_1 = ascii('HTTP/1.');

/** @returns the minor version of `HTTP/1.x`, or a refusal */
function httpMinor(bytes: Buffer, start: number, end: number): number {
  if (end - start !== 8) return MALFORMED;
  for (let i = 0; i < 7; i++) {
    if (bytes[start + i] !== HTTP_1[i]) {
      return /^HTTP\/\d\.\d$/.test(bytes.toString('latin1', start, end)) ? OTHER_MAJOR : MALFORMED;
    }
  }
  const minor = bytes[start + 7]! - 48;
  if (minor === 0 || minor === 1) return minor;
  return minor > 1 && minor <= 9 ? OTHER_MAJOR : MALFORMED;
}

/** Consecutive requests mostly have the same target: comparing bytes costs less than making and hashing a string (benchmark `json-2k`). */
let lastTarget = '';

/** In latin1. */
function isText(bytes: Buffer, start: number, end: number, text: string): boolean {
  if (end - start !== text.length) return false;
  for (let i = 0; i < text.length; i++) if (bytes[start + i] !== text.charCodeAt(i)) return false;
  return true;
}

const OPENING_BRACKET = 91;
const CLOSING_BRACKET = 93;

/** `uri-host [ ":" port ]` (RFC 9110 section 7.2): a name, which may be empty, or an address in brackets. */
function isHost(bytes: Buffer, start: number, end: number): boolean {
  let i = start;
  if (bytes[i] === OPENING_BRACKET) {
    i++;
    while (i < end && (IS_HOST[bytes[i]!] === 1 || bytes[i] === COLON)) i++;
    if (i === end || bytes[i] !== CLOSING_BRACKET) return false;
    i++;
  } else while (i < end && IS_HOST[bytes[i]!] === 1) i++;
  if (i === end) return true;
  if (bytes[i] !== COLON) return false;
  for (i++; i < end; i++) if (bytes[i]! < 48 || bytes[i]! > 57) return false;
  return true;
}

export interface Refusal {
  readonly status: number;
  readonly message: string;
}

/** The head of a request (RFC 9112 sections 2 to 6). It is refused if two parsers could disagree about it. */
export class RequestHead extends Head {
  method = '';
  /** Path and query in the client's spelling; `*` only for `OPTIONS *`. */
  target = '';
  isHttp10 = false;
  /** Also if it is empty. */
  hasRequestIdLine = false;
  /** x-turnout-timeout; '' if absent. */
  timeout = '';
  /** x-turnout-session-end; '' if absent. */
  sessionEnd = '';
  /** A further response header for the request id; '' for none. */
  idHeader = '';
  /** The client waits for `100 Continue` before it sends its body. */
  expectsContinue = false;
  refusal: Refusal | null = null;
  /** Index in `raw` of the line, `NONE` or `SEVERAL`. */
  authorizationAt = NONE;
  apiKeyAt = NONE;
  /** Control requests are allowed (`--admin-port`). */
  isOnAdminPort = false;
  /** The request comes from code of this process: it needs no key, and may be a control request. */
  isTrusted = false;
  #hasHost = false;

  /**
   * Reads the head at `bytes[start]`. @returns the index after its empty line; `INCOMPLETE`; or `BAD` with `refusal` set. The result is
   * that of the first wrong line, however the bytes were split.
   */
  read(bytes: Buffer, start: number, end: number): number {
    const lineEnd = this.#readRequestLine(bytes, start, end);
    if (lineEnd < 0) return lineEnd === INCOMPLETE ? this.#incomplete(start, end) : BAD;
    let at = lineEnd;
    let connectionValue = '';
    const nameBounds: number[] = [];
    let lastLetters = 0;
    for (let count = 0; ; count++) {
      if (at >= end) return this.#incomplete(start, end);
      if (bytes[at] === CR) {
        if (at + 1 >= end) return this.#incomplete(start, end);
        if (bytes[at + 1] === LF) break;
      }
      const next = readField(bytes, at, end);
      if (next === INCOMPLETE) return this.#incomplete(start, end);
      if (next === BAD) {
        const lineEnd = bytes.indexOf(LF, at) + 1;
        if (lineEnd - start > MAX_HEAD_BYTES) return this.#tooLarge();
        return this.#refuse(400, `The request has ${field.refusal}.`);
      }
      if (next - start > MAX_HEAD_BYTES) return this.#tooLarge();
      if (count === MAX_FIELDS) return this.#refuse(431, `The request has more than ${MAX_FIELDS} header lines.`);
      if (field.kind !== 0) {
        if (field.kind === CONNECTION) {
          connectionValue += `,${bytes.toString('latin1', field.valueStart, field.valueEnd)}`;
        }
        if (!this.#note(bytes, start, at, next)) return BAD;
      }
      nameBounds.push(at - start, field.nameEnd - start);
      lastLetters |= 1 << (bytes[field.nameEnd - 1]! & 31);
      at = next;
    }
    this.nameBounds = nameBounds;
    this.lastLetters = lastLetters;
    this.raw = bytes.toString('latin1', start, at + 2);
    this.fieldsStart = lineEnd - start;
    return this.#settle(connectionValue) ? at + 2 : BAD;
  }

  /** @param lineAt index in `raw` */
  valueAt(lineAt: number): string {
    const { raw } = this;
    return raw.slice(raw.indexOf(':', lineAt) + 1, raw.indexOf('\r', lineAt)).trim();
  }

  /** Removes the line at this index of `raw` from the forwarded fields. */
  dropLineAt(lineAt: number): void {
    this.dropLine(lineAt, this.raw.indexOf('\n', lineAt) + 1);
  }

  #readRequestLine(bytes: Buffer, start: number, end: number): number {
    let i = start;
    while (i < end && IS_TOKEN[bytes[i]!] === 1) i++;
    const methodEnd = i;
    if (i < end && bytes[i] === SP && i > start) {
      i++;
      while (i < end && IS_TARGET[bytes[i]!] === 1) i++;
    }
    const targetEnd = i;
    // The line is checked when it is complete, or when it exceeds a limit.
    let lineEnd = i + 11 <= end && bytes[i + 10] === LF ? i + 11 : bytes.indexOf(LF, i) + 1;
    if (lineEnd === 0 || lineEnd > end) lineEnd = -1;
    if ((lineEnd < 0 ? end : lineEnd) - start > MAX_LINE_BYTES) {
      return this.#refuse(414, `The request target is longer than ${MAX_TARGET_BYTES} bytes.`);
    }
    if (lineEnd < 0) return INCOMPLETE;
    if (lineEnd - start < 2 || bytes[lineEnd - 2] !== CR) {
      return this.#refuse(400, 'The request line does not end in CRLF (RFC 9112 section 2.2).');
    }
    if (targetEnd === methodEnd || targetEnd === methodEnd + 1 || bytes[targetEnd] !== SP) {
      return this.#refuse(400, 'The request line is not "METHOD target HTTP/1.1" (RFC 9112 section 3).');
    }
    const version = httpMinor(bytes, targetEnd + 1, lineEnd - 2);
    if (version === MALFORMED) {
      return this.#refuse(400, 'The request line does not end in an HTTP version (RFC 9112 section 3).');
    }
    if (version === OTHER_MAJOR) return this.#refuse(505, 'Only HTTP/1.1 and HTTP/1.0 are supported.');
    this.isHttp10 = version === 0;
    this.isLast = this.isHttp10;
    this.method = isText(bytes, start, methodEnd, 'POST') ? 'POST' : bytes.toString('latin1', start, methodEnd);
    if (!isText(bytes, methodEnd + 1, targetEnd, lastTarget)) {
      lastTarget = bytes.toString('latin1', methodEnd + 1, targetEnd);
    }
    this.target = lastTarget;
    if (!this.#checkMethod()) return BAD;
    return lineEnd;
  }

  #checkMethod(): boolean {
    const { method } = this;
    if (method === 'POST') return this.#checkTarget();
    if (method === 'CONNECT') {
      return this.#fail(501, 'CONNECT is refused: this is a router to inference engines, not a tunnel.');
    }
    // Not 405: that needs an Allow header of the methods that the resource has (RFC 9110 section 15.5.6), and only engines know them.
    if (method === 'TRACE') return this.#fail(501, 'TRACE is not supported.');
    if (!methods.has(method)) return this.#fail(501, 'This method is not known (RFC 9110 section 9.1).');
    return this.#checkTarget();
  }

  #checkTarget(): boolean {
    const { method } = this;
    if (this.target.charCodeAt(0) === 47) return true;
    if (this.target === '*' && method === 'OPTIONS') return true;
    // absolute-form (RFC 9112 section 3.2.2): its authority never chooses an engine.
    const absolute = /^https?:\/\/(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{0,5})?(\/[^\s]*|\?[^\s]*)?$/i.exec(this.target);
    if (absolute === null) return this.#fail(400, 'The request target is neither a path nor an http URL.');
    // An OPTIONS of the whole server is spelled so in this form (section 3.2.4).
    const path = absolute[1] ?? (method === 'OPTIONS' ? '*' : '/');
    this.target = path.startsWith('?') ? `/${path}` : path;
    return true;
  }

  /** For fields that frame the message or end at this hop. */
  #note(bytes: Buffer, start: number, lineStart: number, lineEnd: number): boolean {
    const { kind, valueStart, valueEnd } = field;
    switch (kind) {
      case CONTENT_LENGTH: {
        if (this.contentLength >= 0) return this.#fail(400, 'The request has more than one Content-Length.');
        this.contentLength = readLength(bytes, valueStart, valueEnd);
        return this.contentLength >= 0 || this.#fail(400, 'The Content-Length is not a number of bytes.');
      }
      case TRANSFER_ENCODING:
        if (this.isChunked) return this.#fail(400, 'The request has more than one Transfer-Encoding.');
        if (this.isHttp10) return this.#fail(400, 'HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1).');
        // Whitespace after the word is allowed, but some parsers then overlook the coding (llhttp: a tab).
        if (!isChunkedWord(bytes, valueStart, lineEnd - 2)) return this.#failCoding(bytes, valueStart, lineEnd - 2);
        this.isChunked = true;
        break;
      case HOST:
        if (this.#hasHost) return this.#fail(400, 'The request has more than one Host.');
        this.#hasHost = true;
        if (!isHost(bytes, valueStart, valueEnd)) return this.#fail(400, 'The Host is not a host name.');
        break;
      case EXPECT:
        if (bytes.toString('latin1', valueStart, valueEnd).toLowerCase() !== '100-continue') {
          return this.#fail(417, 'Only the expectation "100-continue" is supported (RFC 9110 section 10.1.1).');
        }
        this.expectsContinue = !this.isHttp10;
        break;
      case UPGRADE:
        if (/\bwebsocket\b/i.test(bytes.toString('latin1', valueStart, valueEnd))) {
          return this.#fail(501, 'WebSocket is not supported.');
        }
        break;
      case REQUEST_ID:
        this.hasRequestIdLine = true;
        if (this.requestId === '') this.requestId = bytes.toString('latin1', valueStart, valueEnd);
        return true;
      case SESSION_END:
        this.sessionEnd = bytes.toString('latin1', valueStart, valueEnd);
        return true;
      case TIMEOUT:
        this.timeout = bytes.toString('latin1', valueStart, valueEnd);
        return true;
      case AUTHORIZATION:
        this.authorizationAt = this.authorizationAt === NONE ? lineStart - start : SEVERAL;
        return true;
      case API_KEY:
        this.apiKeyAt = this.apiKeyAt === NONE ? lineStart - start : SEVERAL;
        return true;
      case CONNECTION:
      case HOP:
        break;
      default:
        return true;
    }
    this.dropLine(lineStart - start, lineEnd - start);
    return true;
  }

  /** Checks that need all fields. */
  #settle(connection: string): boolean {
    if (this.isChunked && this.contentLength >= 0) {
      return this.#fail(400, 'The request has both Content-Length and Transfer-Encoding (RFC 9112 section 6.1).');
    }
    if (!this.#hasHost && !this.isHttp10) return this.#fail(400, 'The request has no Host (RFC 9112 section 3.2).');
    if (connection !== '' && !this.dropNamed(connection)) {
      return this.#fail(400, 'Connection names a field that frames or routes the request.');
    }
    return true;
  }

  #failCoding(bytes: Buffer, start: number, end: number): boolean {
    const codings = bytes.toString('latin1', start, end).toLowerCase();
    // Other codings before a final chunked are valid but not supported (section 6.1). If chunked is not final the end of the body is not
    // known (section 6.3); anything else is an attempt to be parsed in two ways.
    return /^(?:(?:gzip|x-gzip|deflate|compress|x-compress|br|zstd)[\t ]*,[\t ]*)+chunked$/.test(codings)
      ? this.#fail(501, 'This Transfer-Encoding is not supported: send chunked alone, or a Content-Length.')
      : this.#fail(400, 'Transfer-Encoding must be exactly "chunked" (RFC 9112 section 6.1).');
  }

  #incomplete(start: number, end: number): number {
    return end - start > MAX_HEAD_BYTES + 2 ? this.#tooLarge() : INCOMPLETE;
  }

  #tooLarge(): number {
    return this.#refuse(431, `The request head is larger than ${MAX_HEAD_BYTES} bytes.`);
  }

  #fail(status: number, message: string): false {
    this.refusal = { status, message };
    return false;
  }

  #refuse(status: number, message: string): number {
    this.#fail(status, message);
    return BAD;
  }
}
