import { ROOT_CONTEXT, type Span, type SpanContext, type SpanKind, type Tracer, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
  type SpanProcessor,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { version } from '../../config/version.ts';
import { cameWithin } from '../../kit/came-within.ts';
import type { Logger } from '../log.ts';

/** Spans that are not sent yet, including the batch in flight: about 4 MB. */
const MAX_SPANS = 2_048;
const BATCH_SPANS = 512;
/** A collector that does not answer must not keep the router from stopping. */
const CLOSE_MS = 2_000;

export interface SpanExportOptions {
  readonly endpoint: string;
  readonly log: Logger;
}

/** The path of the OTLP specification, if the URL has none. */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  if (url.pathname === '/') url.pathname = '/v1/traces';
  return url.href;
}

/** Sends spans to a collector, in batches. Spans beyond a limit are dropped and counted, and so are those that the collector does not take. */
export class SpanExport {
  readonly counters = { exported: 0, dropped: 0, failed: 0 };
  readonly #provider: TracerProvider;
  readonly #tracer: Tracer;
  readonly #log: Logger;
  readonly #url: string;
  #pending = 0;
  #isFailing = false;

  constructor({ endpoint, log }: SpanExportOptions) {
    this.#log = log;
    this.#url = tracesUrl(endpoint);
    const batches = new BatchSpanProcessor({
      exporter: this.#counted(new OTLPTraceExporter({ url: this.#url })),
      maxQueueSize: MAX_SPANS,
      maxExportBatchSize: BATCH_SPANS,
    });
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    const resource = defaultResource()
      .merge(resourceFromAttributes({ 'service.name': 'turnout', 'service.version': version }))
      .merge(detectResources({ detectors: [envDetector] }));
    this.#provider = new TracerProvider({ resource, spanProcessors: [this.#limited(batches)] });
    this.#tracer = this.#provider.getTracer('turnout', version);
  }

  /** @param startMs of the wall clock @param parent null: the span begins a trace */
  start(name: string, kind: SpanKind, startMs: number, parent: SpanContext | null): Span {
    const context = parent === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent);
    return this.#tracer.startSpan(name, { kind, startTime: startMs }, context);
  }

  async close(): Promise<void> {
    await cameWithin(
      CLOSE_MS,
      this.#provider.shutdown().catch(() => {}),
    );
  }

  #limited(batches: SpanProcessor): SpanProcessor {
    return {
      onStart: () => {},
      onEnd: (span) => {
        if (this.#pending >= MAX_SPANS) this.counters.dropped++;
        else {
          this.#pending++;
          batches.onEnd(span);
        }
      },
      forceFlush: () => batches.forceFlush(),
      shutdown: () => batches.shutdown(),
    };
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
    // Without a password or a token.
    const { origin, pathname } = new URL(this.#url);
    const about = { endpoint: origin + pathname };
    if (error === undefined) this.#log.info(about, 'the trace collector accepts spans again');
    else {
      const line = 'the trace collector does not accept spans: they are dropped (turnout_trace_spans_total)';
      this.#log.warn({ ...about, detail: error.message }, line);
    }
  }
}
