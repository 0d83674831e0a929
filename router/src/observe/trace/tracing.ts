import { randomBytes } from 'node:crypto';
import { type Attributes, type Span, type SpanContext, SpanKind, SpanStatusCode, TraceFlags } from '@opentelemetry/api';
import type { Exchange, Failure } from '../../exchange.ts';
import { reasonText } from '../../choose/reason-text.ts';
import { groupOf, sessionOf } from '../../classify/routing-keys.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import type { Observer } from '../observer.ts';
import { SpanExport, type SpanExportOptions } from './span-export.ts';

export interface TracingOptions extends SpanExportOptions {
  /** The headers that name a session, for requests whose policy did not read keys. */
  readonly sessionHeaders: readonly string[];
  readonly policyOf: (x: Exchange) => string;
  /** Fraction of the requests without a parent that are sampled. */
  readonly sampleRatio: number;
}

interface Traced {
  readonly request: Span;
  /** null: no attempt is open. */
  attempt: Span | null;
  /** Added to monotonic times to get those of the wall clock; one value for all spans of the request. */
  readonly originMs: number;
  /** The part of `heldMs` that spans report already, and the failures. */
  heldMs: number;
  failures: Exchange['failures'];
}

/**
 * Spans of requests: one for the request, and as its children the time in the queue, holds, and each attempt, whose span is the parent of what
 * the engine does (W3C `traceparent`). Whether a request is sampled is decided at its first attempt, or at its end if it had none.
 */
export class Tracing implements Observer {
  readonly export: SpanExport;
  readonly #options: TracingOptions;
  readonly #traced: StateKey<Traced> = {};
  #unsampled = 0;

  constructor(options: TracingOptions) {
    this.#options = options;
    this.export = new SpanExport(options);
  }

  /** Its attempt begins. */
  placed(x: Exchange): void {
    const traced = this.#tracedOf(x);
    if (traced === null) return;
    const { originMs } = traced;
    const nowMs = performance.now();
    if (x.heldMs > traced.heldMs) this.#stage(traced, 'hold', nowMs - x.heldMs + traced.heldMs, nowMs, x.heldFor);
    traced.heldMs = x.heldMs;
    const why = { 'turnout.policy': this.#options.policyOf(x), 'turnout.reason': x.why };
    traced.request.addEvent('choose', why, originMs + nowMs);
    // After a stale connection the next attempt may be at another worker.
    if (traced.attempt !== null) traced.attempt.end(originMs + nowMs);
    traced.attempt = this.export.start('attempt', SpanKind.CLIENT, originMs + nowMs, traced.request.spanContext());
    traced.attempt.setAttributes(attemptAttributes(x));
    const { traceId, spanId } = traced.attempt.spanContext();
    setParent(x, traceId, spanId, TraceFlags.SAMPLED);
  }

  attemptFailed(x: Exchange, worker: Worker, failure: Failure, detail: string): void {
    const traced = x.state(this.#traced);
    if (traced === null || traced.attempt === null) return;
    // Not their number: that of a continued generation begins anew.
    const isAside = x.failures === traced.failures;
    traced.failures = x.failures;
    const { attempt, originMs } = traced;
    const about = { 'error.type': failure, 'turnout.worker': worker.url, 'turnout.detail': detail };
    // A stale connection is replaced within the attempt; a prefill engine may fail after its part is done.
    if (isAside || failure === 'stale') {
      attempt.addEvent('failure', about, originMs + performance.now());
      return;
    }
    addFirsts(x, attempt, originMs);
    attempt.setAttributes({ ...about, 'http.response.status_code': failure === 'status' ? Number(detail) : undefined });
    attempt.setStatus({ code: SpanStatusCode.ERROR, message: detail });
    attempt.end(originMs + performance.now());
    traced.attempt = null;
  }

  finished(x: Exchange): void {
    const traced = this.#tracedOf(x);
    if (traced === null) return;
    const { request, attempt, originMs } = traced;
    const endMs = x.endMs!;
    // The request was held when it ended.
    if (x.heldMs > traced.heldMs) this.#stage(traced, 'hold', endMs - x.heldMs + traced.heldMs, endMs, x.heldFor);
    if (attempt !== null) this.#endAttempt(x, attempt, originMs);
    const session = sessionOf(x, this.#options.sessionHeaders);
    request.setAttributes(requestAttributes(x, session, this.#options.policyOf(x)));
    if (x.firstByteMs !== null) request.addEvent('first byte', originMs + x.firstByteMs);
    if (x.error !== null || (x.status ?? 0) >= 500)
      request.setStatus({ code: SpanStatusCode.ERROR, message: x.error?.code ?? '' });
    request.end(originMs + endMs);
  }

  close(): Promise<void> {
    return this.export.close();
  }

  /** @returns null: the request is not sampled: it has no entry after its first attempt. Those of control requests are not placed. */
  #tracedOf(x: Exchange): Traced | null {
    return x.state(this.#traced) ?? (x.attempts > 0 && x.audience === null ? null : this.#begin(x));
  }

  #begin(x: Exchange): Traced | null {
    const header = x.head.get('traceparent');
    const parent = header === undefined ? null : readParent(header);
    const isSampled =
      parent === null ? Math.random() < this.#options.sampleRatio : (parent.traceFlags & TraceFlags.SAMPLED) !== 0;
    if (!isSampled) {
      // Without the header engines would sample by themselves. An unsampled parent's header passes as it is.
      if (parent === null && x.outcome === null) this.#setUnsampled(x);
      return null;
    }
    const name = x.isGeneration ? `${x.head.method} ${x.path}` : x.head.method;
    const originMs = Date.now() - performance.now();
    const request = this.export.start(name, SpanKind.SERVER, originMs + x.startMs, parent);
    const traced: Traced = { request, attempt: null, originMs, heldMs: 0, failures: x.failures };
    if (x.outcome === null) x.setState(this.#traced, traced);
    if (x.queuedMs > 0) this.#stage(traced, 'queue', x.startMs, x.startMs + x.queuedMs);
    return traced;
  }

  /** Ids that are not recorded only have to differ; six random words would cost 2.4 µs (Node 24.21). */
  #setUnsampled(x: Exchange): void {
    this.#unsampled = (this.#unsampled + 1) % 2 ** 28;
    const number = (2 ** 28 + this.#unsampled).toString(16);
    setParent(x, UNSAMPLED_TRACE + number, UNSAMPLED_TRACE.slice(-8) + number, TraceFlags.NONE);
  }

  /** @param startMs monotonic, as `endMs` */
  #stage(
    { request, originMs }: Traced,
    name: string,
    startMs: number,
    endMs: number,
    reason: string | null = null,
  ): void {
    const span = this.export.start(name, SpanKind.INTERNAL, originMs + startMs, request.spanContext());
    if (reason !== null) span.setAttributes({ 'turnout.reason': reason });
    span.end(originMs + endMs);
  }

  #endAttempt(x: Exchange, attempt: Span, originMs: number): void {
    addFirsts(x, attempt, originMs);
    const type = x.error?.code ?? (x.outcome === 'client_left' ? 'client_left' : '');
    attempt.setAttributes({
      'http.response.status_code': x.status ?? undefined,
      'turnout.resumed_parts': x.seams.length || undefined,
      'error.type': type || undefined,
    });
    if (type !== '' || (shownStatus(x) ?? 0) >= 400) attempt.setStatus({ code: SpanStatusCode.ERROR, message: type });
    attempt.end(originMs + x.endMs!);
  }
}

/** The first byte and token of the response, if they are of the present attempt: another one may have continued the response. */
function addFirsts({ firstByteMs, firstTokenMs, isStream, sentMs }: Exchange, attempt: Span, originMs: number): void {
  const fromMs = sentMs ?? Infinity;
  if (firstByteMs !== null && firstByteMs >= fromMs) attempt.addEvent('first byte', originMs + firstByteMs);
  if (isStream && firstTokenMs !== null && firstTokenMs >= fromMs)
    attempt.addEvent('first token', originMs + firstTokenMs);
}

const UNSAMPLED_TRACE = randomBytes(12).toString('hex');

const VERSION_00 = /^[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(?:$|-)/;

/** The header `traceparent` (W3C Trace Context, level 1); null if it is not valid. */
function readParent(text: string): SpanContext | null {
  const [, traceId = '', spanId = '', flags = ''] = VERSION_00.exec(text) ?? [];
  if (text.startsWith('ff') || /^0*$/.test(traceId) || /^0*$/.test(spanId)) return null;
  return { traceId, spanId, traceFlags: parseInt(flags, 16) & TraceFlags.SAMPLED, isRemote: true };
}

/** Sets the header for the present attempt; `tracestate` passes unchanged. */
function setParent(x: Exchange, traceId: string, spanId: string, flags: number): void {
  x.head.drop('traceparent');
  x.traceLine = `traceparent: 00-${traceId}-${spanId}-0${flags}\r\n`;
}

// Names of attributes are those of OpenTelemetry's semantic conventions 1.38 where these have one; the others begin with `turnout.`.

/** The operation of a generation as the conventions name it. */
function operationOf(path: string): string {
  if (path.includes('embed')) return 'embeddings';
  return /\/(?:chat|messages|responses)/.test(path) ? 'chat' : 'text_completion';
}

/** Without bodies, headers and queries, except session, group and model. */
function requestAttributes(x: Exchange, session: string, policy: string): Attributes {
  const { error, status, usage } = x;
  const group = groupOf(x) || undefined;
  return {
    'http.request.method': x.head.method,
    'url.path': x.clientPath ?? x.path,
    'http.route': x.isGeneration ? x.path : undefined,
    'http.response.status_code': shownStatus(x),
    'error.type': error?.code ?? ((status ?? 0) >= 500 ? String(status) : undefined),
    'gen_ai.operation.name': x.isGeneration ? operationOf(x.path) : undefined,
    'gen_ai.request.model': x.model || undefined,
    'gen_ai.conversation.id': session || undefined,
    'gen_ai.usage.input_tokens': usage?.promptTokens ?? undefined,
    'gen_ai.usage.output_tokens': usage?.outputTokens,
    'turnout.request_id': x.head.requestId,
    'turnout.session': session || undefined,
    'turnout.group': group,
    'turnout.outcome': x.outcome ?? undefined,
    'turnout.attempts': x.attempts,
    'turnout.policy': x.placement === null ? undefined : policy,
    'turnout.reason': reasonText(x) || undefined,
    'turnout.worker': x.worker?.url,
    'turnout.cached_tokens': usage?.cachedTokens ?? undefined,
    'turnout.response_bytes': x.answerBytes,
  };
}

function attemptAttributes(x: Exchange): Attributes {
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
    'turnout.policy.predicted_cached_tokens': x.predictedTokens === null ? undefined : Math.round(x.predictedTokens),
  };
}

/** The client's status; undefined: none. */
const shownStatus = ({ error, status }: Exchange): number | undefined => status ?? (error?.status || undefined);

function addressOf({ engineUrl }: Worker): { hostname: string; port: number } {
  const { hostname, port, protocol } = new URL(engineUrl);
  return { hostname, port: port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port) };
}
