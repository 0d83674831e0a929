import { randomBytes } from 'node:crypto';
import { generate } from '../engines/dialects/generate.ts';
import { isGeneration } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import { MAX_TIMER_MS } from '../kit/clock.ts';
import { type ErrorFormat, RouterError } from '../kit/errors.ts';
import type { RequestHead } from '../wire/request-head.ts';

/** Eighteen characters per process and six per id: with their prefix, ids look like those of other routers. */
const idSeed = randomBytes(9).toString('hex');
/** Six characters in base 36, for two billion ids. */
let idCount = 36 ** 5;
/** The last two of them, by their value: to convert each number costs more than the rest of an id (benchmark `json-2k`). */
const idEnds = Array.from({ length: 36 ** 2 }, (_, value) => value.toString(36).padStart(2, '0'));
let idStart = '';

/** The prefixes of response ids in engines and other routers. */
const idPrefixes: Readonly<Record<string, string>> = {
  '/v1/chat/completions': 'chatcmpl-',
  '/v1/completions': 'cmpl-',
  [generate.path]: 'gnt-',
  '/v1/responses': 'resp-',
  '/v1/messages': 'msg_',
};

/** Client ids of another form are replaced, because ids are logged. */
const SAFE_ID = /^[\x21-\x7e]{1,256}$/;

/** Values of the session end header, including Python's str(True). */
const YES = /^(1|true|yes)$/i;
const NO = /^(0|false|no)$/i;

const OPENAI = /^\/(?:v1|inference|skyrl|hot_load)\//;

/** Seconds in x-turnout-timeout. */
const SECONDS = /^\d{1,7}(\.\d{1,6})?$/;

/**
 * Sets what the request's head says. The body is not read.
 *
 * @param idHeaders further headers with request ids, in order of preference
 * @returns what is wrong with the request
 */
export function classify(x: Exchange, idHeaders: readonly string[]): RouterError | null {
  const { head } = x;
  if (head.target !== last.target || head.method !== last.method) last = saidBy(head);
  x.path = last.path;
  x.errorFormat = last.errorFormat;
  x.isGeneration = last.isGeneration;
  if (x.clientTarget !== null) x.clientPath = normalPath(x.clientTarget);
  if (idHeaders.length > 0) readIdHeaders(x, idHeaders);
  else if (head.requestId === '' || !SAFE_ID.test(head.requestId)) {
    if (head.hasRequestIdLine) head.drop('x-request-id');
    head.requestId = nextId(x.path);
    x.isRequestIdOurs = true;
  }
  if (head.sessionEnd !== '') {
    x.isLastTurn = YES.test(head.sessionEnd);
    if (!x.isLastTurn && !NO.test(head.sessionEnd)) return wrongSessionEnd();
  }
  if (head.timeout === '') return null;
  const timeoutMs = SECONDS.test(head.timeout) ? Number(head.timeout) * 1000 : 0;
  if (timeoutMs === 0) return wrongTimeout();
  x.timeoutMs = Math.min(timeoutMs, MAX_TIMER_MS);
  return null;
}

const wrongTimeout = (): RouterError =>
  new RouterError('bad_request', 'x-turnout-timeout must be a number of seconds above 0, for example 30 or 0.5.');

const wrongSessionEnd = (): RouterError =>
  new RouterError(
    'bad_request',
    'x-turnout-session-end must be 1, true or yes, or 0, false or no if the session continues.',
  );

/** The first valid id is the request's. Its own header goes to the engine unchanged. */
function readIdHeaders(x: Exchange, names: readonly string[]): void {
  const { head } = x;
  const own = head.requestId;
  if (head.hasRequestIdLine && !SAFE_ID.test(own)) {
    head.drop('x-request-id');
    head.hasRequestIdLine = false;
  }
  for (const name of names.includes('x-request-id') ? names : [...names, 'x-request-id']) {
    const id = name === 'x-request-id' ? own : (head.get(name) ?? '');
    if (!SAFE_ID.test(id)) continue;
    head.requestId = id;
    if (name !== 'x-request-id') head.idHeader = name;
    return;
  }
  head.requestId = nextId(x.path);
  x.isRequestIdOurs = true;
  const first = names[0]!;
  if (first === 'x-request-id') return;
  head.drop(first);
  head.idHeader = first;
}

function saidBy({ method, target }: Pick<RequestHead, 'method' | 'target'>) {
  const path = normalPath(target);
  return { method, target, path, errorFormat: errorFormatOf(path), isGeneration: isGeneration(method, path) };
}

/** Mostly the next request has the same request line; and a path whose hash is known is found faster (benchmark `json-2k`). */
let last: Readonly<ReturnType<typeof saidBy>> = {
  method: '',
  target: '',
  path: '',
  errorFormat: 'plain',
  isGeneration: false,
};

function nextId(path: string): string {
  const end = idCount % idEnds.length;
  if (end === 0) idStart = idSeed + (idCount / idEnds.length).toString(36);
  idCount++;
  return (idPrefixes[path] ?? 'req-') + idStart + idEnds[end];
}

export function errorFormatOf(path: string): ErrorFormat {
  if (path === '/v1/messages' || path.startsWith('/v1/messages/')) return 'anthropic';
  if (OPENAI.test(path)) return 'openai';
  return path === generate.path || path === '/encode' || path === '/classify' ? 'sglang' : 'plain';
}

/**
 * The one normal form of a path. It decides both where a request goes and who may send it, so that no spelling bypasses
 * a rule. Percent-encoded unreserved characters are decoded, empty and dot segments resolved (RFC 3986 section 6.2.2),
 * a backslash counts as a slash, as in URL parsers of browsers and Node, and the query is left out. The engine gets the
 * client's own spelling.
 */
export const normalPath = (target: string): string => normalForm(target, false);

/**
 * The same, but escaped slashes stay escaped and divide no segments: they are part of a name (`/trajectories/a%2F%2Fb`). No rule may be decided
 * by it.
 */
export const pathWithNames = (target: string): string => normalForm(target, true);

function normalForm(target: string, keepsSlashes: boolean): string {
  const query = target.indexOf('?');
  const path = query < 0 ? target : target.slice(0, query);
  if (path.includes('\\')) return normalForm(path.replaceAll('\\', '/'), keepsSlashes);
  if (!path.includes('%') && !path.includes('//') && !path.includes('/.') && !path.endsWith('/')) return path;
  // The slash is reserved, but uvicorn, the engines' server, decodes it before routing.
  const decodes = keepsSlashes ? /[\w.~-]/ : /[\w.~/-]/;
  const decoded = path.replace(/%([0-9a-f]{2})/gi, (escape, hex: string) => {
    const char = String.fromCharCode(Number.parseInt(hex, 16));
    return decodes.test(char) ? char : escape.toUpperCase();
  });
  const segments: string[] = [];
  for (const segment of decoded.split('/')) {
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(segment);
  }
  return `/${segments.join('/')}`;
}
