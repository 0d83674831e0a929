import { randomFillSync } from 'node:crypto';
import { RouterError } from '../../kit/errors.ts';
import { JsonEdit } from '../../kit/json-edit.ts';
import { noObject } from './pair-plan.ts';
import { MemberFinder, readScalarText, scanItems } from '../../kit/json-scan.ts';

/** The bootstrap server of a prefill engine, through which SGLang's engines exchange addresses. */
export interface BootstrapServer {
  readonly host: string;
  /** null: the prefill engine uses the port that it was started with. */
  readonly port: number | null;
}

/** Bounds the size of the fields, which have an item for each prompt. */
const MAX_BATCH = 65_536;

const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const SP = 0x20;

const NAMES = ['text', 'input_ids', 'prompt', 'n', 'return_logprob', 'sampling_params'];
const [TEXT, INPUT_IDS, PROMPT, N, RETURN_LOGPROB, SAMPLING] = [0, 2, 4, 6, 8, 10] as const;
const fields = new MemberFinder(NAMES);
const samples = new MemberFinder(['n']);

/** The body for both engines. */
export interface PairBody {
  readonly bytes: Buffer;
  /** The request asks for log probabilities of the prompt, which only the prefill engine has. */
  readonly asksForLogprobs: boolean;
}

/**
 * Adds the three fields of SGLang's pairs at the end of the client's JSON. Of members with the same name the engines take the last one
 * (Python's json and orjson), so these override the client's. All other bytes stay as they are.
 *
 * For a batch of prompts each field is a list, with a room number for each prompt. Several samples of one prompt are refused: SGLang
 * 0.5.23 gives all of them the room of the prompt and then waits forever.
 */
export function addBootstrap(path: string, body: Buffer, server: BootstrapServer): PairBody | RouterError {
  const spans = new Int32Array(2 * NAMES.length);
  const end = fields.find(body, 0, body.length, spans);
  if (end < 0 || !isBlank(body, end)) {
    return noObject();
  }
  if (wantsSamples(path, body, spans)) {
    const message =
      'SGLang does not answer n above 1 in pairs of prefill and decode engines. Send the prompt n times, in one batch or in several requests.';
    return new RouterError('not_with_pairs', message);
  }
  const size = batchSize(path, body, spans);
  if (size > MAX_BATCH) {
    return new RouterError('bad_request', `A request to a prefill/decode pair may have at most ${MAX_BATCH} prompts.`);
  }
  const host = JSON.stringify(server.host);
  const port = String(server.port);
  const each = (values: readonly string[]): string => (size < 0 ? values[0]! : `[${values.join()}]`);
  const edit = new JsonEdit(body);
  edit.append(end - 1, {
    bootstrap_host: each(repeated(host, size)),
    bootstrap_port: each(repeated(port, size)),
    bootstrap_room: each(rooms(Math.max(size, 1))),
  });
  // A batch may have a list of them.
  const wanted = body.subarray(Math.max(0, spans[RETURN_LOGPROB]!), Math.max(0, spans[RETURN_LOGPROB + 1]!));
  return { bytes: edit.result(), asksForLogprobs: path === '/generate' && wanted.includes('true') };
}

const repeated = (item: string, size: number): string[] => Array.from({ length: Math.max(size, 1) }, () => item);

/** Random numbers below 2^63; as text, because a double would round them. */
function rooms(count: number): string[] {
  const numbers = randomFillSync(new BigUint64Array(count));
  return Array.from(numbers, (number) => String(number >> 1n));
}

function wantsSamples(path: string, body: Buffer, spans: Int32Array): boolean {
  if (path !== '/generate') return isAboveOne(body, spans[N]!, spans[N + 1]!);
  const [start, end] = [spans[SAMPLING]!, spans[SAMPLING + 1]!];
  if (start < 0) return false;
  const at = new Int32Array(2);
  const inOne = (from: number, to: number): boolean =>
    samples.find(body, from, to, at) >= 0 && isAboveOne(body, at[0]!, at[1]!);
  if (body[start] !== OPEN_ARRAY) return inOne(start, end);
  let isFound = false; // a batch may have parameters for each of its prompts
  scanItems(body, start, end, (from, to) => {
    isFound = inOne(from, to);
    return !isFound;
  });
  return isFound;
}

const isAboveOne = (body: Buffer, start: number, end: number): boolean => Number(readScalarText(body, start, end)) > 1;

/** The number of prompts, as SGLang 0.5.23 counts them; -1: one prompt that is not in a list. */
function batchSize(path: string, body: Buffer, spans: Int32Array): number {
  if (path === '/v1/chat/completions') return -1;
  if (path === '/v1/completions') return lengthOfList(body, spans, PROMPT, true);
  // If both are given the engine takes the text; a null counts as absent.
  return hasValue(body, spans, TEXT)
    ? lengthOfList(body, spans, TEXT, true)
    : lengthOfList(body, spans, INPUT_IDS, false);
}

const hasValue = (body: Buffer, spans: Int32Array, which: number): boolean =>
  spans[which]! >= 0 && body.toString('latin1', spans[which], spans[which + 1]) !== 'null';

/** The length of a list of prompts, each text or ids; -1: it is one prompt. The first item decides, as in the engine. */
function lengthOfList(body: Buffer, spans: Int32Array, which: number, mayBeText: boolean): number {
  const start = spans[which]!;
  if (start < 0 || body[start] !== OPEN_ARRAY) return -1;
  let count = 0;
  let isList = false;
  scanItems(body, start, spans[which + 1]!, (itemStart) => {
    if (count === 0) isList = body[itemStart] === OPEN_ARRAY || (mayBeText && body[itemStart] === QUOTE);
    count++;
    return isList;
  });
  return isList ? count : -1;
}

function isBlank(body: Buffer, start: number): boolean {
  for (let at = start; at < body.length; at++) {
    const byte = body[at]!;
    if (byte !== SP && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return false;
  }
  return true;
}
