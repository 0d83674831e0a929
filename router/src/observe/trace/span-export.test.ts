import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { SpanKind } from '@opentelemetry/api';
import { recordedLog } from '../../../test/harness/log-lines.ts';
import { startTraceCollector } from '../../../test/harness/trace-collector.ts';
import { until } from '../../../test/harness/within.ts';
import { SpanExport, tracesUrl } from './span-export.ts';

test('the path of traces is added to a bare address only', () => {
  equal(tracesUrl('http://localhost:4318'), 'http://localhost:4318/v1/traces');
  equal(tracesUrl('http://localhost:4318/'), 'http://localhost:4318/v1/traces');
  equal(tracesUrl('https://collector/otlp/v1/traces'), 'https://collector/otlp/v1/traces');
});

test('spans beyond the limit are dropped and counted while the collector does not answer', async (t) => {
  const collector = await startTraceCollector(t);
  const waiting: (() => void)[] = [];
  collector.instead = (response) => waiting.push(() => response.writeHead(200).end('{}'));
  const { log } = recordedLog();
  const spans = new SpanExport({ endpoint: collector.url, log });
  for (let i = 0; i < 3_000; i++) spans.start('s', SpanKind.INTERNAL, Date.now(), null).end();
  await until('the first batch is sent', () => waiting.length > 0);
  deepEqual(spans.counters, { exported: 0, dropped: 3_000 - 2_048, failed: 0 });
  collector.instead = null;
  for (const answer of waiting) answer();
  await spans.close();
  await until('all are sent', () => spans.counters.exported + spans.counters.failed >= 2_048);
  const { exported, dropped, failed } = spans.counters;
  ok(exported === 2_048 && dropped === 952 && failed === 0, JSON.stringify(spans.counters));
});

test('the log names a collector that fails without its password or token', async (t) => {
  const collector = await startTraceCollector(t);
  collector.instead = (response) => void response.writeHead(401).end();
  const { log, of } = recordedLog();
  const address = collector.url.replace('//', '//me:hidden@');
  const spans = new SpanExport({ endpoint: `${address}/v1/traces?token=hidden`, log });
  spans.start('s', SpanKind.INTERNAL, Date.now(), null).end();
  await spans.close();
  const lines = () => of('the trace collector does not accept spans: they are dropped (turnout_trace_spans_total)');
  await until('it is logged', () => lines().length > 0);
  const [line] = lines();
  equal(line!['endpoint'], `${collector.url}/v1/traces`);
  ok(!JSON.stringify(line).includes('hidden'));
});
