import { JsonEdit, type MemberPlace } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import { CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH } from './calls.ts';
import { readChoices } from './choices.ts';
import { completions } from './completions.ts';
import { generate, readGenerate } from './generate.ts';
import { inference } from './inference.ts';

/** The paths on which SGLang 0.5.23 accepts the fields of a pair. */
export const sglangPairPaths: ReadonlySet<string> = new Set([generate.path, completions.path, CHAT_PATH]);

/** In the message of a status 500 SGLang 0.5.23 says so that a request was aborted before its KV cache was transferred. */
export const ABORTED_IN_TRANSFER = 'Aborted by AbortReq';

/** Members of a request that ask SGLang for `EXPERTS_NAMES`, and for log probabilities (`/generate` alone). */
export const EXPERTS_QUESTIONS = ['return_routed_experts', 'return_indexer_topk'] as const;
export const LOGPROBS_QUESTION = 'return_logprob';

/** What `/generate` returns of the prompt's tokens alone. */
export const PROMPT_LISTS = ['input_token_logprobs', 'input_top_logprobs', 'input_token_ids_logprobs'] as const;

/** A part of a response of SGLang 0.5.23 that has such members. */
export interface PromptPart {
  /** Of the prompt; `RESPONSE`: it is a part of the whole response, with the members of one of its prompts. */
  readonly index: number;
  readonly info: Json;
}
export const RESPONSE = -1;

/** @param start of the JSON in `bytes`: a response, or the data of an event */
export function promptParts(bytes: Buffer, start: number): readonly PromptPart[] {
  const answers = readGenerate(bytes, start)?.deltas ?? [];
  if (answers.length > 0) return answers;
  const answer = readChoices(bytes, start);
  const infos = answer?.deltas.flatMap(({ info }) => info ?? []) ?? [];
  const extension = answer?.json.get('sglext') ?? null;
  return extension === null ? infos : [...infos, { index: RESPONSE, info: extension }];
}

const tokens = ['max_tokens', 'min_tokens'];

/**
 * The paths on which vLLM 0.32.0 accepts and returns `kv_transfer_params`, each with its bounds on the length of a response. With `min_tokens`
 * the one token of a prefill engine is never an end: of those older vLLM hands nothing over.
 */
export const vllmPairPaths: ReadonlyMap<string, readonly string[]> = new Map([
  [completions.path, tokens],
  [CHAT_PATH, tokens],
  [MESSAGES_PATH, tokens],
  [RESPONSES_PATH, ['max_output_tokens']],
  [inference.path, tokens],
]);

/** The newer name of a bound, which counts if both are set. */
export const LATER_BOUND = 'max_completion_tokens';

/**
 * What a request asks of its prompt's tokens. A decode engine can't tell, since it never reads the prompt; asked for it, vLLM's breaks
 * (vllm-project/vllm#50792).
 */
export const promptQuestions = ['prompt_logprobs', 'prompt_logprob_token_ids', 'prompt_logprob_start'] as const;

/** Where a response of vLLM 0.32.0 has what only the engine that computed the prompt knows; null: not there. */
export function promptPlaces(answer: Json): {
  readonly logprobs: MemberPlace | null;
  readonly idLogprobs: MemberPlace | null;
  readonly choiceLogprobs: MemberPlace | null;
  readonly experts: MemberPlace | null;
  /** An object with `cached_tokens`. */
  readonly details: MemberPlace | null;
} {
  const choice = answer.get('choices')?.first() ?? null;
  return {
    logprobs: answer.place('prompt_logprobs'),
    idLogprobs: answer.place('prompt_token_id_logprobs'),
    choiceLogprobs: choice?.place('prompt_logprobs') ?? null,
    experts: choice?.place('routed_experts') ?? null,
    details: answer.get('usage')?.place('prompt_tokens_details') ?? null,
  };
}

/**
 * Whether a prefill engine of vLLM 0.32.0 says that its request was aborted. `/v1/messages` and `/v1/responses` have no word for that: no token
 * was sampled, and only an abort prevents the first one.
 */
export const isAborted = (answer: Json): boolean =>
  answer.get('choices')?.first()?.get('finish_reason')?.text() === 'abort' ||
  answer.get('usage')?.get('output_tokens')?.number() === 0;

/** The whole response to an aborted request, as the stream that the client asked for. */
export function abortedStream(path: string, body: Buffer): Buffer {
  const answer = Json.object(body);
  const edit = new JsonEdit(body);
  const object = answer?.place('object') ?? null;
  const message = answer?.get('choices')?.first()?.place('message') ?? null;
  if (object !== null && message !== null) {
    edit.replace(object.valueStart, object.to, '"chat.completion.chunk"');
    edit.replace(message.from, message.valueStart, '"delta":');
  }
  const whole = edit.result().toString('latin1');
  const usage = answer?.get('usage')?.raw().toString('latin1') ?? '{}';
  let events = `data: ${whole}\n\ndata: [DONE]\n\n`;
  if (path === MESSAGES_PATH) {
    events =
      typed('message_start', `,"message":${whole}`) +
      typed('message_delta', `,"delta":{"stop_reason":null,"stop_sequence":null},"usage":${usage}`) +
      typed('message_stop');
  } else if (path === RESPONSES_PATH) {
    events =
      typed('response.created', `,"sequence_number":0,"response":${whole}`) +
      typed('response.completed', `,"sequence_number":1,"response":${whole}`);
  }
  return Buffer.from(events, 'latin1');
}

const typed = (type: string, members = ''): string => `event: ${type}\ndata: {"type":"${type}"${members}}\n\n`;
