import { once } from 'node:events';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

interface Attribute {
  readonly key: string;
  readonly value: { readonly stringValue?: string; readonly intValue?: number; readonly doubleValue?: number };
}

/** A span as OTLP has it in JSON. */
interface OtlpSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly Attribute[];
  readonly events: readonly { readonly name: string; readonly attributes: readonly Attribute[] }[];
  readonly status: { readonly code?: number; readonly message?: string };
}

interface OtlpTraces {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

/** A span in a form that tests can compare. */
export interface Span {
  readonly traceId: string;
  readonly id: string;
  readonly parent: string;
  readonly name: string;
  readonly kind: number;
  readonly startMs: number;
  readonly ms: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly events: readonly string[];
  readonly isError: boolean;
}

const record = (attributes: readonly Attribute[]): Record<string, unknown> =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue ?? value.doubleValue]),
  );

const spanOf = (span: OtlpSpan): Span => ({
  traceId: span.traceId,
  id: span.spanId,
  parent: span.parentSpanId ?? '',
  name: span.name,
  kind: span.kind,
  startMs: Number(span.startTimeUnixNano) / 1e6,
  ms: Number(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1e6,
  attributes: record(span.attributes),
  events: span.events.map(({ name }) => name),
  isError: span.status.code === 2,
});

/** A collector that takes traces by OTLP over HTTP. */
export interface TraceCollector {
  readonly url: string;
  readonly spans: Span[];
  /** Of the last batch. */
  resource: Readonly<Record<string, unknown>>;
  /** Called in place of a good answer. */
  instead: ((response: ServerResponse) => void) | null;
  named(name: string): Span[];
}

export async function startTraceCollector(t: TestContext): Promise<TraceCollector> {
  const spans: Span[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      if (collector.instead !== null) return collector.instead(response);
      if (request.url !== '/v1/traces') return void response.writeHead(404).end();
      const { resourceSpans } = JSON.parse(Buffer.concat(parts).toString()) as OtlpTraces;
      for (const { resource, scopeSpans } of resourceSpans) {
        collector.resource = record(resource.attributes);
        spans.push(...scopeSpans.flatMap((scope) => scope.spans.map(spanOf)));
      }
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const collector: TraceCollector = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    resource: {},
    instead: null,
    named: (name) => spans.filter((span) => span.name === name),
  };
  return collector;
}
