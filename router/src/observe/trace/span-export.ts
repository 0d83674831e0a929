import type { SpanContext, SpanKind } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';
import { version } from '../../config/version.ts';
import type { Logger } from '../log.ts';
import { type SpanOrigin, TraceSpan } from './span.ts';

/** Spans that are not sent yet, those of the batch on its way included: about 4 MB. */
const MAX_SPANS = 2_048;
const BATCH_SPANS = 512;
/** A collector that does not answer must not keep the router from stopping. */
const CLOSE_MS = 2_000;

export interface SpanExportOptions {
  readonly endpoint: string;
  readonly log: Logger;
}

/** Collectors take traces at this path, and it is left out where one address is given for all signals. */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  if (url.pathname === '/') url.pathname = '/v1/traces';
  return url.href;
}

/** Sends spans to a collector, in batches. Spans beyond a limit are dropped and counted, and so are those that the collector does not take. */
export class SpanExport {
  readonly counters = { exported: 0, dropped: 0, failed: 0 };
  readonly #batches: BatchSpanProcessor;
  readonly #origin: SpanOrigin;
  readonly #log: Logger;
  readonly #url: string;
  #pending = 0;
  #isFailing = false;

  constructor({ endpoint, log }: SpanExportOptions) {
    this.#log = log;
    this.#url = tracesUrl(endpoint);
    this.#batches = new BatchSpanProcessor({
      exporter: this.#counted(new OTLPTraceExporter({ url: this.#url })),
      maxQueueSize: MAX_SPANS,
      maxExportBatchSize: BATCH_SPANS,
    });
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    const resource = defaultResource()
      .merge(resourceFromAttributes({ 'service.name': 'turnout', 'service.version': version }))
      .merge(detectResources({ detectors: [envDetector] }));
    this.#origin = { resource, instrumentationScope: { name: 'turnout', version } };
  }

  /** @param parent null: the span begins a trace */
  start(name: string, kind: SpanKind, startMs: number, parent: SpanContext | null): TraceSpan {
    return new TraceSpan(this.#origin, name, kind, startMs, parent);
  }

  end(span: TraceSpan, endMs: number): void {
    span.end(endMs);
    if (this.#pending >= MAX_SPANS) {
      this.counters.dropped++;
      return;
    }
    this.#pending++;
    this.#batches.onEnd(span);
  }

  /** Sends what is left, for a short time at most. */
  async close(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<void>((resolve) => (timer = setTimeout(resolve, CLOSE_MS)));
    await Promise.race([this.#batches.shutdown().catch(() => {}), limit]);
    clearTimeout(timer);
  }

  #counted(exporter: SpanExporter): SpanExporter {
    return {
      export: (spans: ReadableSpan[], done) => {
        exporter.export(spans, (result) => {
          this.#pending -= spans.length;
          if (result.error === undefined) this.counters.exported += spans.length;
          else this.counters.failed += spans.length;
          this.#note(result.error);
          done(result);
        });
      },
      forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve(),
      shutdown: () => exporter.shutdown(),
    };
  }

  /** A collector that fails is logged once, until it works again. */
  #note(error: Error | undefined): void {
    if (this.#isFailing === (error !== undefined)) return;
    this.#isFailing = error !== undefined;
    const about = { endpoint: this.#url };
    if (error === undefined) this.#log.info(about, 'the trace collector accepts spans again');
    else {
      const line = 'the trace collector does not accept spans: they are dropped (turnout_trace_spans_total)';
      this.#log.warn({ ...about, detail: error.message }, line);
    }
  }
}
