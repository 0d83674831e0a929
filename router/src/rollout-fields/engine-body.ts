import { withNamespace } from '../engines/dialects/request-fields.ts';
import { withMembers, withoutMembers } from '../kit/json-edit.ts';
import { MemberFinder } from '../kit/json-scan.ts';
import type { RolloutFields } from './fields.ts';
import type { LayerFacts } from './layers.ts';

/** The dialects of the engines that the fields are translated to. */
export type Dialect = 'vllm' | 'sglang';

/** How a worker's engine is asked. */
export interface EngineRequest {
  readonly dialect: Dialect;
  /** The client wants a stream and the engine is asked for a whole response: in its stream something would be missing. */
  readonly isWhole: boolean;
  /** Rows of routed experts may be left out: how many came shows in the response. */
  readonly maySkipRows: boolean;
}

/** The fields that no engine has; vLLM's `echo` of chats is something else. */
const OWN = [
  'include_routing_matrix',
  'routing_matrix_format',
  'echo',
  'echo_last',
  'raw_output',
  'perf_metrics_in_response',
  'prompt_cache_isolation_key',
];

const topK = new MemberFinder(['top_k']);

export const needsIds = ({ rawOutput, returnTokenIds, hasContent, matrix, echo }: RolloutFields): boolean =>
  rawOutput || returnTokenIds || hasContent || matrix !== null || echo !== null;

export function engineRequest(fields: RolloutFields, dialect: Dialect, layers: LayerFacts | null): EngineRequest {
  const { isStream, isChat, matrix, echo } = fields;
  // SGLang (0.5.23) refuses return_token_ids in streams of chats; vLLM (0.33) streams no routed experts and no prompt_logprobs.
  const isMissing = matrix !== null || echo !== null || (dialect === 'sglang' && isChat && needsIds(fields));
  // SGLang sends numbers without a shape, and older releases send all rows.
  const maySkipRows = dialect === 'vllm' || (layers !== null && layers.layers !== null && layers.perToken !== null);
  return { dialect, isWhole: isStream && isMissing, maySkipRows };
}

/** The body for an engine. Members of the client that no field is about stay as they are. */
export function engineBody(
  body: Buffer,
  fields: RolloutFields,
  { dialect, isWhole, maySkipRows }: EngineRequest,
): Buffer {
  const {
    isChat,
    isStream,
    echo,
    hasContent,
    hasLists,
    topLogprobs,
    matrix,
    isPromptOnly,
    perfMetrics,
    hasUsageInLast,
  } = fields;
  const members: Record<string, string> = {};
  const removed = [...OWN];
  if (needsIds(fields)) members['return_token_ids'] = 'true';
  if (hasContent && !isChat && !hasLists) members['logprobs'] = String(topLogprobs);
  if (isPromptOnly) {
    // No engine makes nothing: what it makes is left out of the response.
    members['max_tokens'] = '1';
    removed.push('max_completion_tokens');
  }
  if (isWhole) {
    members['stream'] = 'false';
    removed.push('stream_options');
  } else if (isStream && (perfMetrics || hasUsageInLast)) {
    members['stream_options'] = '{"include_usage":true}';
  }
  const firstRow = maySkipRows ? firstRowOf(fields) : 0;
  // SGLang returns logprobs of a prompt with at least one alternative only.
  if (echo !== null && !isChat) Object.assign(members, { echo: 'true', logprobs: String(Math.max(1, topLogprobs)) });
  if (dialect === 'vllm') {
    // The snapshots of its chunks (0.33; older releases ignore the field).
    if (isWhole) members['return_weight_versions'] = 'true';
    if (echo !== null && isChat) members['prompt_logprobs'] = String(topLogprobs);
    if (firstRow > 0) members['routed_experts_prompt_start'] = String(firstRow);
  } else {
    // Chats have experts and ids of alternatives for each choice in meta_info, and how long a request was queued.
    const needsInfo = matrix !== null || (hasContent && (topLogprobs > 0 || perfMetrics));
    if (isChat && needsInfo && (isWhole || !isStream)) {
      members['return_meta_info'] = 'true';
    }
    if (matrix !== null) members['return_routed_experts'] = 'true';
    if (firstRow > 0) members['routed_experts_start_len'] = String(firstRow);
  }
  const spans = new Int32Array(2);
  topK.find(body, 0, body.length, spans);
  // 0 is vLLM's and Fireworks' word for no limit, -1 SGLang's.
  if (dialect === 'sglang' && spans[0]! >= 0 && body.toString('latin1', spans[0], spans[1]) === '0') {
    members['top_k'] = '-1';
  }
  const names = removed.filter((name) => members[name] === undefined);
  const salted = fields.isolates ? withNamespace(body, dialect, '') : body;
  return withMembers(withoutMembers(salted, names), members) ?? body;
}

/** Rows before the first token that the client gets need not be sent; how many tokens a prompt of text has is not known. */
function firstRowOf({ matrix, promptTokens, echo }: RolloutFields): number {
  if (matrix === null || promptTokens < 0) return 0;
  return Math.max(0, promptTokens - (echo ?? 0) - 1);
}
