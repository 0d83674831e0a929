import type { Worker } from '../../fleet/worker.ts';
import { isDone, jsonValue } from '../../forward/control/report.ts';
import { MemberFinder, scanItems } from '../../kit/json-scan.ts';
import type { Dispatch, DispatchResponse } from '../../listen/dispatch.ts';

export interface EngineRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** An engine's response, or why there is none. */
export type Outcome =
  | { readonly status: number; readonly body: Buffer; readonly isTruncated: boolean; readonly ms: number }
  | { readonly code: 'upstream_unreachable' | 'upstream_timeout'; readonly message: string };

/** Longer responses are truncated. */
const MAX_BYTES = 1_048_576;
const timeouts: ReadonlySet<string> = new Set(['request_timeout', 'first_byte_timeout']);

/** As a client's request that names the engine. */
export async function callEngine(dispatch: Dispatch, worker: Worker, request: EngineRequest): Promise<Outcome> {
  const startMs = performance.now();
  const headers = { ...request.headers, 'x-turnout-worker': worker.engineUrl };
  try {
    const response = await dispatch({ ...request, headers, isTrusted: true });
    const { body, isTruncated } = await beginningOf(response);
    const error = response.headers.get('x-turnout-error');
    if (error === null) return { status: response.status, body, isTruncated, ms: performance.now() - startMs };
    return refusedWith(error, body);
  } catch (error) {
    return unreached((error as Error).message);
  }
}

async function beginningOf(response: DispatchResponse): Promise<{ body: Buffer; isTruncated: boolean }> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of response.body) {
    parts.push(Buffer.from(part));
    bytes += part.length;
    if (bytes > MAX_BYTES) break;
  }
  return { body: Buffer.concat(parts).subarray(0, MAX_BYTES), isTruncated: bytes > MAX_BYTES };
}

/** As a client's request that names no engine. @param engines all engines of the fleet */
export async function callAll(
  dispatch: Dispatch,
  engines: readonly Worker[],
  request: EngineRequest,
): Promise<(readonly [Worker, Outcome])[]> {
  const response = await dispatch({ ...request, isTrusted: true });
  const report = await response.bytes();
  const error = response.headers.get('x-turnout-error');
  const outcomes = error === null ? outcomesIn(report) : null;
  // Not sent again: some engines may have got it.
  const missing = error === null ? unreached('the engine left the fleet') : refusedWith(error, report);
  return engines.map((worker) => [worker, outcomes?.get(worker.engineUrl) ?? missing]);
}

const finder = new MemberFinder(['worker', 'status', 'body', 'error', 'ms']);
const resultsFinder = new MemberFinder(['results']);

/** By the URL of the engine; bodies stay as they are. */
function outcomesIn(report: Buffer): Map<string, Outcome> {
  const outcomes = new Map<string, Outcome>();
  const spans = new Int32Array(10);
  const valueAt = (i: number): unknown => JSON.parse(report.toString('utf8', spans[2 * i], spans[2 * i + 1]));
  const results = new Int32Array(2);
  resultsFinder.find(report, 0, report.length, results);
  scanItems(report, results[0]!, results[1]!, (start, end) => {
    finder.find(report, start, end, spans);
    const status = valueAt(1) as number | null;
    const hasBody = status !== null && spans[4]! >= 0;
    outcomes.set(
      valueAt(0) as string,
      hasBody
        ? { status, body: report.subarray(spans[4], spans[5]), isTruncated: false, ms: valueAt(4) as number }
        : unreached(valueAt(3) as string),
    );
  });
  return outcomes;
}

const unreached = (message: string): Outcome => ({ code: 'upstream_unreachable', message });
const refusedWith = (error: string, body: Buffer): Outcome => ({
  code: timeouts.has(error) ? 'upstream_timeout' : 'upstream_unreachable',
  message: body.toString(),
});

export const outcomeJson = ({ id, url }: Worker, outcome: Extract<Outcome, { status: number }>): string =>
  `{"worker_id":${JSON.stringify(id)},"url":${JSON.stringify(url)},"status":${outcome.status},` +
  `"latency_ms":${Math.round(outcome.ms)},"body":${jsonValue(outcome.body)}${outcome.isTruncated ? ',"body_truncated":true' : ''}}`;

/** The status is 200 if all engines succeeded, else 207. */
export function fanOutJson(outcomes: readonly (readonly [Worker, Outcome])[]): { status: 200 | 207; json: string } {
  const results: string[] = [];
  const failed: object[] = [];
  for (const [worker, outcome] of outcomes) {
    const { id: worker_id, url } = worker;
    if ('code' in outcome) {
      failed.push({ worker_id, url, error: outcome.code, message: outcome.message });
      continue;
    }
    results.push(`${JSON.stringify(worker_id)}:${outcomeJson(worker, outcome)}`);
    const { status, body } = outcome;
    if (isDone({ status, body, error: null })) continue;
    const message = status < 300 ? 'the engine reports that it failed' : `HTTP ${status}`;
    failed.push({ worker_id, url, error: 'upstream_error', message, status });
  }
  const succeeded = outcomes.length - failed.length;
  return {
    status: failed.length === 0 ? 200 : 207,
    json: `{"results":{${results.join(',')}},"failed":${JSON.stringify(failed)},"total":${outcomes.length},"succeeded":${succeeded}}`,
  };
}
