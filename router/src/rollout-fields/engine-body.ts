import { membersFor } from '../engines/dialects/asking.ts';
import { withNamespace } from '../engines/dialects/request-fields.ts';
import type { EngineKind } from '../engines/engine.ts';
import { withMembers, withoutMembers } from '../kit/json-edit.ts';
import { Json } from '../kit/json-members.ts';
import type { RolloutFields } from './fields.ts';
import type { LayerFacts } from './layers.ts';

/** How a worker's engine is asked. */
export interface EngineRequest {
  readonly engine: EngineKind;
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

const EMPTY = Buffer.from('{}');

const needsIds = ({ rawOutput, returnTokenIds, hasContent, matrix, echo }: RolloutFields): boolean =>
  rawOutput || returnTokenIds || hasContent || matrix !== null || echo !== null;

export function engineRequest(fields: RolloutFields, engine: EngineKind, layers: LayerFacts | null): EngineRequest {
  const { isStream, isChat, matrix, echo } = fields;
  // SGLang (0.5.23) returns no ids in streams of chats; vLLM (0.33) streams no routed experts and no prompt_logprobs.
  const isMissing = matrix !== null || echo !== null || (engine === 'sglang' && isChat && needsIds(fields));
  // SGLang sends numbers without a shape, and older releases send all rows.
  const maySkipRows = engine !== 'sglang' || (layers !== null && layers.layers !== null && layers.perToken !== null);
  return { engine, isWhole: isStream && isMissing, maySkipRows };
}

/** The body for an engine. Members of the client that no field is about stay as they are. */
export function engineBody(
  body: Buffer,
  fields: RolloutFields,
  { engine, isWhole, maySkipRows }: EngineRequest,
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
  // Chats have experts and ids of alternatives for each choice in meta_info, and how long a request was queued.
  const hasInfo = matrix !== null || (hasContent && (topLogprobs > 0 || perfMetrics));
  const members: Record<string, string> = {
    ...membersFor(engine, {
      ids: needsIds(fields),
      expertsFrom: matrix === null ? null : maySkipRows ? firstRowOf(fields) : 0,
      promptTop: echo !== null && isChat ? topLogprobs : null,
      // The snapshots of chunks.
      versions: isWhole,
      info: isChat && hasInfo && (isWhole || !isStream),
    }),
  };
  const removed = [...OWN];
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
    const own = Json.object(body)?.get('stream_options')?.raw() ?? EMPTY;
    members['stream_options'] = String(withMembers(own, { include_usage: 'true' }) ?? '{"include_usage":true}');
  }
  // SGLang returns logprobs of a prompt with at least one alternative only.
  if (echo !== null && !isChat) Object.assign(members, { echo: 'true', logprobs: String(Math.max(1, topLogprobs)) });
  // 0 is vLLM's and Fireworks' word for no limit, -1 SGLang's.
  if (engine === 'sglang' && Json.object(body)?.get('top_k')?.number() === 0) members['top_k'] = '-1';
  const names = removed.filter((name) => members[name] === undefined);
  const salted = fields.isolates ? withNamespace(body, engine, '') : body;
  return withMembers(withoutMembers(salted, names), members) ?? body;
}

/** Rows before the first token that the client gets need not be sent; how many tokens a prompt of text has is not known. */
const firstRowOf = ({ promptTokens, echo }: RolloutFields): number =>
  promptTokens < 0 ? 0 : Math.max(0, promptTokens - (echo ?? 0) - 1);
