import { METHODS } from 'node:http';
import { createRequire } from 'node:module';

/**
 * The second opinion: llhttp as Node's own server and client use it, with every leniency switched off.
 *
 * Node exports the parser only from an internal module that is not in its types; nothing but these tests uses it.
 */

interface Parser {
  initialize(type: number, resource: object, maxHeaderBytes: number, lenientFlags: number): void;
  execute(bytes: Buffer): number | (Error & { code: string; bytesParsed: number });
  [callback: number]: unknown;
}

interface ParserClass {
  new (): Parser;
  readonly REQUEST: number;
  readonly RESPONSE: number;
  readonly kOnMessageBegin: number;
  readonly kOnHeaders: number;
  readonly kOnHeadersComplete: number;
  readonly kOnBody: number;
  readonly kOnMessageComplete: number;
  readonly kLenientNone: number;
}

const { HTTPParser } = createRequire(import.meta.url)('_http_common') as { HTTPParser: ParserClass };

/** One message as llhttp understood it. */
export interface Message {
  method: string;
  url: string;
  status: number;
  minor: number;
  /** Names and values by turns. */
  fields: string[];
  body: string;
  areFieldsComplete: boolean;
  isComplete: boolean;
}

export interface Reading {
  messages: Message[];
  /** Why it stopped, '' when it took everything. */
  error: string;
}

const MAX_HEAD_BYTES = 10_000_000;
const parser = new HTTPParser();
const methodOf = new Map<number, string>();
let reading: Reading = { messages: [], error: '' };

const current = (): Message => reading.messages.at(-1)!;

parser[HTTPParser.kOnMessageBegin] = () => {
  reading.messages.push({
    method: '',
    url: '',
    status: 0,
    minor: 0,
    fields: [],
    body: '',
    areFieldsComplete: false,
    isComplete: false,
  });
};
parser[HTTPParser.kOnHeaders] = (fields: string[], url: string) => {
  // Trailers come this way too.
  if (!current().areFieldsComplete) current().fields.push(...fields);
  current().url += url;
};
parser[HTTPParser.kOnHeadersComplete] = (
  _major: number,
  minor: number,
  fields: string[] | undefined,
  method: number,
  url: string | undefined,
  status: number,
) => {
  const message = current();
  message.minor = minor;
  message.fields.push(...(fields ?? []));
  message.method = methodOf.get(method) ?? `${method}`;
  message.url += url ?? '';
  message.status = status;
  message.areFieldsComplete = true;
  return 0;
};
parser[HTTPParser.kOnBody] = (part: Buffer) => {
  current().body += part.toString('latin1');
};
parser[HTTPParser.kOnMessageComplete] = () => {
  current().isComplete = true;
};

function read(type: number, bytes: Buffer): Reading {
  reading = { messages: [], error: '' };
  parser.initialize(type, {}, MAX_HEAD_BYTES, HTTPParser.kLenientNone);
  const result = parser.execute(bytes);
  if (typeof result !== 'number') reading.error = result.code;
  return reading;
}

export const readRequests = (bytes: Buffer): Reading => read(HTTPParser.REQUEST, bytes);
export const readResponses = (bytes: Buffer): Reading => read(HTTPParser.RESPONSE, bytes);

// The parser tells methods by number.
for (const method of METHODS) {
  const [message] = readRequests(Buffer.from(`${method} / HTTP/1.1\r\nhost: x\r\n\r\n`)).messages;
  if (message?.areFieldsComplete === true) methodOf.set(Number(message.method), method);
}
