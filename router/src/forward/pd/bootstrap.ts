import { randomFillSync } from 'node:crypto';
import { dialectOf } from '../../engines/dialects/dialects.ts';
import { generate } from '../../engines/dialects/generate.ts';
import { EXPERTS_QUESTIONS, LOGPROBS_QUESTION } from '../../engines/dialects/pairs.ts';
import { RouterError } from '../../kit/errors.ts';
import { JsonEdit } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import { noObject } from './pair-plan.ts';

/** The bootstrap server of a prefill engine, through which SGLang's engines exchange addresses. */
export interface BootstrapServer {
  readonly host: string;
  /** null: the prefill engine uses the port that it was started with. */
  readonly port: number | null;
}

/** Bounds the size of the fields, which have an item for each prompt. */
const MAX_BATCH = 65_536;

/** The body for both engines. */
export interface PairBody {
  readonly bytes: Buffer;
  /** The number of prompts. */
  readonly count: number;
  /** The request asks for something of its prompt's tokens, which only the prefill engine knows. */
  readonly asksOfPrompt: boolean;
}

/**
 * Adds the three fields of SGLang's pairs at the end of the client's JSON. Of members with the same name the engines take the last one
 * (Python's json and orjson), so these override the client's. All other bytes stay as they are.
 *
 * For a batch of prompts each field is a list, with a room number for each prompt. Several samples of one prompt are refused: SGLang
 * 0.5.23 gives all of them the room of the prompt and then waits forever.
 */
export function addBootstrap(path: string, body: Buffer, server: BootstrapServer): PairBody | RouterError {
  const request = Json.object(body);
  if (request === null || !isBlank(body, request.end)) return noObject();
  const isGenerate = path === generate.path;
  if (wantsSamples(isGenerate ? request.get(generate.request.params!) : request)) {
    const message =
      'SGLang does not answer n above 1 in pairs of prefill and decode engines. Send the prompt n times, in one batch or in several requests.';
    return new RouterError('not_with_pairs', message);
  }
  const size = batchSize(path, request);
  if (size > MAX_BATCH) {
    return new RouterError('bad_request', `A request to a prefill/decode pair may have at most ${MAX_BATCH} prompts.`);
  }
  const host = JSON.stringify(server.host);
  const port = String(server.port);
  const each = (values: readonly string[]): string => (size < 0 ? values[0]! : `[${values.join()}]`);
  const edit = new JsonEdit(body);
  edit.append(request.end - 1, {
    bootstrap_host: each(repeated(host, size)),
    bootstrap_port: each(repeated(port, size)),
    bootstrap_room: each(rooms(Math.max(size, 1))),
  });
  const questions = isGenerate ? [LOGPROBS_QUESTION, ...EXPERTS_QUESTIONS] : EXPERTS_QUESTIONS;
  const asksOfPrompt = questions.some((name) => isYes(request.get(name)));
  return { bytes: edit.result(), count: Math.max(size, 1), asksOfPrompt };
}

/** @param answer a batch may have a list of them */
const isYes = (answer: Json | null): boolean =>
  answer?.isList === true ? answer.some((one) => one.isTrue) : answer?.isTrue === true;

const repeated = (item: string, size: number): string[] => Array.from({ length: Math.max(size, 1) }, () => item);

/** Random numbers below 2^63; as text, because a double would round them. */
function rooms(count: number): string[] {
  const numbers = randomFillSync(new BigUint64Array(count));
  return Array.from(numbers, (number) => String(number >> 1n));
}

/** @param params a batch may have a list of them, one for each of its prompts */
function wantsSamples(params: Json | null): boolean {
  const wants = (one: Json | null): boolean => Number(one?.get('n')?.scalar() ?? 0) > 1;
  return params?.isList === true ? params.some(wants) : wants(params);
}

/** The number of prompts, as SGLang 0.5.23 counts them; -1: one prompt that is not in a list. */
function batchSize(path: string, request: Json): number {
  const dialect = dialectOf(path);
  if (dialect === null) return -1;
  const { ids, text } = dialect.request;
  // If both are given the engine takes the text; a null counts as absent.
  const prompts = request.get(text!) ?? request.get(ids);
  const first = prompts?.first() ?? null;
  // The first item decides whether this is a list of prompts, as in the engine.
  if (first === null || !(first.isList || first.isText)) return -1;
  let size = 0;
  prompts!.some(() => {
    size++;
    return false;
  });
  return size;
}

const isBlank = (body: Buffer, start: number): boolean => /^[ \t\r\n]*$/.test(body.toString('latin1', start));
