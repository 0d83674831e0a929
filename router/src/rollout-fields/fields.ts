import { MemberFinder, readScalarText, scanItems } from '../kit/json-scan.ts';

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
  readonly promptText: Buffer | null;
  /** Members of the engine's own API that the client set itself. */
  readonly asked: readonly string[];
}

/** A problem with a field. `code` is that of the response's error. */
export interface FieldProblem {
  readonly problem: string;
}

const NAMES = [
  'include_routing_matrix',
  'routing_matrix_format',
  'echo',
  'echo_last',
  'raw_output',
  'return_token_ids',
  'perf_metrics_in_response',
  'prompt_cache_isolation_key',
  'logprobs',
  'top_logprobs',
  'stream',
  'stream_options',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'prompt',
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'presence_penalty',
  'frequency_penalty',
  'repetition_penalty',
  'logit_bias',
  'prompt_logprobs',
  'return_meta_info',
  'return_routed_experts',
  'return_prompt_token_ids',
  'return_weight_versions',
] as const;
type Name = (typeof NAMES)[number];

/** Fields of which engines know nothing: no engine refuses a wrong value. */
const FLAGS: readonly Name[] = ['include_routing_matrix', 'raw_output', 'perf_metrics_in_response'];

/** Fields of engines that the plugin sets: what the client did not ask for itself is left out of its response. */
const ENGINE_FIELDS: readonly Name[] = [
  'prompt_logprobs',
  'return_meta_info',
  'return_routed_experts',
  'return_prompt_token_ids',
  'return_weight_versions',
];

const finder = new MemberFinder(NAMES);

/**
 * @param isRollout the request came by a path of rollout inference: `logprobs: true` of a chat is one of its fields
 * @returns null: the request uses none of the fields
 */
export function readFields(body: Buffer, isChat: boolean, isRollout: boolean): RolloutFields | FieldProblem | null {
  const spans = new Int32Array(2 * NAMES.length);
  if (finder.find(body, 0, body.length, spans) < 0) return null;
  const json = (name: Name): Buffer | null => {
    const at = 2 * NAMES.indexOf(name);
    const value = spans[at]! < 0 ? null : body.subarray(spans[at], spans[at + 1]);
    return value === null || value.equals(NULL) ? null : value;
  };
  const scalar = (name: Name): string | null => {
    const value = json(name);
    return value === null ? null : readScalarText(value, 0, value.length);
  };
  const isTrue = (name: Name): boolean => scalar(name) === 'true';
  const number = (name: Name): number | null => {
    const text = scalar(name);
    return text === null || text === 'true' || text === 'false' ? null : Number(text);
  };

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
    isTrue('return_token_ids') ||
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
  const includesUsage = /"include_usage"\s*:\s*true/.test(json('stream_options')?.toString('latin1') ?? '');
  return {
    isChat,
    isStream: isTrue('stream'),
    includesUsage,
    hasUsageInLast: isRollout && !includesUsage,
    matrix: wantsMatrix ? format : null,
    echo: echo === 0 ? null : echo,
    isPromptOnly: echo !== null && maxTokens === 0,
    hasContent: isTrue('logprobs') || hasLists,
    hasLists,
    topLogprobs: number('top_logprobs') ?? (hasLists ? number('logprobs')! : 0),
    rawOutput: isTrue('raw_output'),
    returnTokenIds: isTrue('return_token_ids'),
    perfMetrics: isTrue('perf_metrics_in_response'),
    isolates: (scalar('prompt_cache_isolation_key') ?? '') !== '',
    samples: number('n') ?? 1,
    // Unset parameters are not known: engines take them from the model's generation_config.json.
    isFullDistribution:
      number('temperature') === 1 &&
      number('top_p') === 1 &&
      [0, -1].includes(number('top_k') ?? NaN) &&
      [0, null].includes(number('min_p')) &&
      [0, null].includes(number('presence_penalty')) &&
      [0, null].includes(number('frequency_penalty')) &&
      [1, null].includes(number('repetition_penalty')) &&
      json('logit_bias') === null,
    promptTokens: wantsMatrix && prompt !== null ? countIds(prompt) : -1,
    promptText: echo === Infinity && prompt?.[0] === QUOTE ? Buffer.from(prompt) : null,
    asked: ENGINE_FIELDS.filter((name) => json(name) !== null && scalar(name) !== 'false'),
  };
}

/** @returns -1: it is no list of numbers */
function countIds(prompt: Buffer): number {
  let count = 0;
  const after = scanItems(prompt, 0, prompt.length, (start) => {
    const isDigit = prompt[start]! >= 0x30 && prompt[start]! <= 0x39;
    count = isDigit ? count + 1 : -1;
    return isDigit;
  });
  return after < 0 || count === 0 ? -1 : count;
}

export const REFUSED_FORMAT = "Extra inputs are not permitted, field: 'routing_matrix_format'";

const NULL = Buffer.from('null');
const QUOTE = 0x22;
