import type { Attributes } from '@opentelemetry/api';
import { groupOf } from '../../classify/routing-keys.ts';
import { reasonText } from '../../choose/reason-text.ts';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';

/** Names are those of OpenTelemetry's semantic conventions 1.38 where these have one; the others begin with `turnout.`. */

/** The operation of a generation as the conventions name it. */
function operationOf(path: string): string {
  if (path.includes('embed')) return 'embeddings';
  return /\/(?:chat|messages|responses)/.test(path) ? 'chat' : 'text_completion';
}

/** Never a body, a header or a query, except session, group and model. */
export function requestAttributes(x: Exchange, session: string, policy: string): Attributes {
  const { error, status, usage } = x;
  const group = groupOf(x) || undefined;
  return {
    'http.request.method': x.head.method,
    'url.path': x.clientPath || x.path,
    'http.route': x.isGeneration ? x.path : undefined,
    'http.response.status_code': shownStatus(x),
    'error.type': error?.code ?? (status >= 500 ? String(status) : undefined),
    'gen_ai.operation.name': x.isGeneration ? operationOf(x.path) : undefined,
    'gen_ai.request.model': x.model || undefined,
    'gen_ai.conversation.id': session || undefined,
    'gen_ai.usage.input_tokens': counted(usage?.promptTokens),
    'gen_ai.usage.output_tokens': counted(usage?.outputTokens),
    'turnout.request_id': x.head.requestId,
    'turnout.session': session || undefined,
    'turnout.group': group,
    'turnout.outcome': x.outcome ?? undefined,
    'turnout.attempts': x.attempts,
    'turnout.policy': x.placement === null ? undefined : policy,
    'turnout.reason': reasonText(x) || undefined,
    'turnout.worker': x.worker?.url,
    'turnout.cached_tokens': counted(usage?.cachedTokens),
    'turnout.response_bytes': x.answerBytes,
  };
}

/** Of an attempt, when it begins. */
export function attemptAttributes(x: Exchange): Attributes {
  const legs = x.placement?.legs ?? [];
  const worker = legs.at(-1)?.worker;
  const address = worker === undefined ? undefined : addressOf(worker);
  return {
    'http.request.method': x.head.method,
    'url.path': x.path,
    'server.address': address?.hostname,
    'server.port': address?.port,
    'http.request.resend_count': x.attempts === 0 ? undefined : x.attempts,
    'gen_ai.operation.name': x.isGeneration ? operationOf(x.path) : undefined,
    'gen_ai.provider.name': worker?.engine ?? undefined,
    'turnout.worker': worker?.url,
    'turnout.prefill_worker': legs.length > 1 ? legs[0]!.worker.url : undefined,
    'turnout.policy.predicted_cached_tokens': x.predictedTokens < 0 ? undefined : Math.round(x.predictedTokens),
  };
}

/** The status that the client got; undefined: none. */
export const shownStatus = ({ error, status }: Exchange): number | undefined =>
  status > 0 ? status : error?.status || undefined;

const counted = (tokens: number | undefined): number | undefined =>
  tokens === undefined || tokens < 0 ? undefined : tokens;

function addressOf({ engineUrl }: Worker): { hostname: string; port: number } {
  const { hostname, port, protocol } = new URL(engineUrl);
  return { hostname, port: port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port) };
}
