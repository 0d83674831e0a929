import {
  type Attributes,
  type HrTime,
  type SpanContext,
  type SpanKind,
  type SpanStatus,
  SpanStatusCode,
  TraceFlags,
} from '@opentelemetry/api';
import type { Resource } from '@opentelemetry/resources';
import { RandomIdGenerator, type ReadableSpan } from '@opentelemetry/sdk-trace';

const ids = new RandomIdGenerator();

/** What all spans of a process have in common. */
export interface SpanOrigin {
  readonly resource: Resource;
  readonly instrumentationScope: ReadableSpan['instrumentationScope'];
}

/**
 * A sampled span as the SDK's exporters read it; times are ms of the wall clock. A span of the SDK's tracer takes about three times
 * as much CPU, for limits, contexts and metrics that are not used here (benchmark `json-2k-observed`).
 */
export class TraceSpan implements ReadableSpan, SpanOrigin {
  readonly name: string;
  readonly kind: SpanKind;
  readonly context: SpanContext;
  readonly parentSpanContext?: SpanContext;
  readonly attributes: Attributes = {};
  readonly events: { name: string; time: HrTime; attributes: Attributes }[] = [];
  readonly links: [] = [];
  readonly startTime: HrTime;
  endTime: HrTime = [0, 0];
  duration: HrTime = [0, 0];
  ended = false;
  status: SpanStatus = { code: SpanStatusCode.UNSET };
  readonly resource: Resource;
  readonly instrumentationScope: SpanOrigin['instrumentationScope'];
  readonly droppedAttributesCount = 0;
  readonly droppedEventsCount = 0;
  readonly droppedLinksCount = 0;
  readonly #startMs: number;

  /** @param parent null: the span begins a trace */
  constructor(origin: SpanOrigin, name: string, kind: SpanKind, startMs: number, parent: SpanContext | null) {
    this.resource = origin.resource;
    this.instrumentationScope = origin.instrumentationScope;
    this.name = name;
    this.kind = kind;
    if (parent !== null) this.parentSpanContext = parent;
    const traceId = parent?.traceId ?? ids.generateTraceId();
    this.context = { traceId, spanId: ids.generateSpanId(), traceFlags: TraceFlags.SAMPLED };
    this.#startMs = startMs;
    this.startTime = timeOf(startMs);
  }

  spanContext(): SpanContext {
    return this.context;
  }

  /** Those that are undefined are left out. */
  add(attributes: Attributes): void {
    for (const name in attributes) if (attributes[name] !== undefined) this.attributes[name] = attributes[name];
  }

  event(name: string, atMs: number, attributes: Attributes = {}): void {
    this.events.push({ name, time: timeOf(atMs), attributes });
  }

  fail(message: string): void {
    this.status = { code: SpanStatusCode.ERROR, message };
  }

  end(endMs: number): void {
    this.ended = true;
    this.endTime = timeOf(endMs);
    this.duration = timeOf(endMs - this.#startMs);
  }
}

/** Seconds and nanoseconds. */
function timeOf(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.floor((ms - seconds * 1000) * 1e6)];
}
