import { askedBy, asksForIds } from '../engines/dialects/asking.ts';
import { type Parameters, isNeutral, penalties, processors } from '../generation/parameters.ts';
import { sharedCopy } from '../kit/bytes.ts';
import { Json } from '../kit/json-members.ts';

/** What a request asks for with the fields of rollout inference. Plain data: it goes to a thread. */
export interface RolloutFields {
  readonly isChat: boolean;
  /** The client wants a stream. */
  readonly isStream: boolean;
  readonly includesUsage: boolean;
  /** The last chunk of the stream has `usage`, as that of Fireworks: the client did not ask for an event of its own. */
  readonly hasUsageInLast: boolean;
  /** The type of the numbers in routing matrices; null: none are wanted. */
  readonly matrix: 'uint8' | 'uint16' | null;
  /** How many tokens of the prompt are echoed: Infinity for all; null: no echo. */
  readonly echo: number | null;
  /** Only the prompt is wanted: `max_tokens` is 0. */
  readonly isPromptOnly: boolean;
  /** Logprobs are wanted as `content`. */
  readonly hasContent: boolean;
  /** `logprobs` of a completion is a number: its lists are wanted, too. */
  readonly hasLists: boolean;
  readonly topLogprobs: number;
  readonly rawOutput: boolean;
  readonly returnTokenIds: boolean;
  readonly perfMetrics: boolean;
  /** It has a prompt_cache_isolation_key. */
  readonly isolates: boolean;
  readonly samples: number;
  /** The sampling parameters say that tokens are sampled from all of the model's distribution. */
  readonly isFullDistribution: boolean;
  /** Tokens of the prompt, if it is a list of ids; else -1. */
  readonly promptTokens: number;
  /** The JSON of the prompt, if it is a text that will be echoed; else null. */
  readonly promptText: Uint8Array | null;
  /** Members of the engine's own API that the client set itself. */
  readonly asked: readonly string[];
}

/** A problem with a field. `code` is that of the response's error. */
export interface FieldProblem {
  readonly problem: string;
}

/**
 * Parameters by which tokens are sampled from another distribution than the one of which engines return raw logprobs: vLLM computes these
 * before it applies them (0.33, `Sampler`). The mask of a grammar is in both kinds: vLLM and SGLang apply it before.
 */
const CHANGING: Parameters = {
  ...penalties,
  ...processors,
  min_p: [0],
  logit_bias: [],
  allowed_token_ids: [],
  min_tokens: [0],
  min_new_tokens: [0],
};

/** Fields of which engines know nothing: no engine refuses a wrong value. */
const FLAGS = ['include_routing_matrix', 'raw_output', 'perf_metrics_in_response'];

/**
 * @param isRollout the request came by a path of rollout inference: `logprobs: true` of a chat is one of its fields
 * @returns null: the request uses none of the fields
 */
export function readFields(body: Buffer, isChat: boolean, isRollout: boolean): RolloutFields | FieldProblem | null {
  const request = Json.object(body);
  if (request === null) return null;
  const json = (name: string): Json | null => request.get(name);
  const scalar = (name: string): string | null => json(name)?.scalar() ?? null;
  const isTrue = (name: string): boolean => scalar(name) === 'true';
  const number = (name: string): number | null => {
    const text = scalar(name);
    return text === null || text === 'true' || text === 'false' ? null : Number(text);
  };
  const returnTokenIds = asksForIds(request);

  const wrong = FLAGS.find((name) => json(name) !== null && !['true', 'false'].includes(scalar(name) ?? ''));
  if (wrong !== undefined) return { problem: `${wrong} must be true or false.` };
  const wantsMatrix = isTrue('include_routing_matrix');
  const hasContent = isTrue('logprobs') && (isRollout || !isChat);
  const echoLast = number('echo_last');
  const uses =
    wantsMatrix ||
    hasContent ||
    echoLast !== null ||
    json('routing_matrix_format') !== null ||
    isTrue('raw_output') ||
    returnTokenIds ||
    isTrue('perf_metrics_in_response') ||
    json('prompt_cache_isolation_key') !== null ||
    (isChat && isTrue('echo'));
  if (!uses) return null;

  const format = scalar('routing_matrix_format') ?? 'uint8';
  // The SDK (1.2.28) reads this text, and asks again without the field.
  if (format !== 'uint8' && format !== 'uint16') return { problem: REFUSED_FORMAT };
  const hasLists = !isChat && number('logprobs') !== null;
  if (wantsMatrix && !isTrue('logprobs') && !hasLists) {
    return { problem: 'include_routing_matrix needs "logprobs": true: the matrices are in logprobs.content.' };
  }
  if (echoLast !== null && !(Number.isInteger(echoLast) && echoLast >= 0)) {
    return { problem: 'echo_last must be a whole number of tokens, 0 or more.' };
  }
  const echo = echoLast ?? (isTrue('echo') ? Infinity : null);
  const maxTokens = number('max_tokens') ?? number('max_completion_tokens');
  const prompt = json('prompt');
  const includesUsage = json('stream_options')?.get('include_usage')?.isTrue === true;
  return {
    isChat,
    isStream: json('stream')?.isTrue === true,
    includesUsage,
    hasUsageInLast: isRollout && !includesUsage,
    matrix: wantsMatrix ? format : null,
    echo: echo === 0 ? null : echo,
    isPromptOnly: echo !== null && maxTokens === 0,
    hasContent: isTrue('logprobs') || hasLists,
    hasLists,
    topLogprobs: number('top_logprobs') ?? (hasLists ? number('logprobs')! : 0),
    rawOutput: isTrue('raw_output'),
    returnTokenIds,
    perfMetrics: isTrue('perf_metrics_in_response'),
    isolates: (scalar('prompt_cache_isolation_key') ?? '') !== '',
    samples: number('n') ?? 1,
    // Unset parameters are not known: engines take them from the model's generation_config.json.
    isFullDistribution:
      number('temperature') === 1 &&
      number('top_p') === 1 &&
      [0, -1].includes(number('top_k') ?? NaN) &&
      Object.entries(CHANGING).every(([name, neutral]) => isNeutral(json(name)?.valueIfAny(), neutral)),
    promptTokens: wantsMatrix && prompt?.isList === true && prompt.first()?.number() != null ? prompt.count() : -1,
    promptText: echo === Infinity && prompt?.isText === true ? sharedCopy([prompt.raw()]) : null,
    asked: askedBy(request),
  };
}

export const REFUSED_FORMAT = "Extra inputs are not permitted, field: 'routing_matrix_format'";
