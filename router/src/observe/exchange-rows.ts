import { reasonText } from '../choose/reason-text.ts';
import { groupOf, sessionOf } from '../classify/routing-keys.ts';
import type { Candidate, Exchange, Failure, Outcome } from '../exchange.ts';
import type { Observer } from './observer.ts';

/** A finished exchange in the access log, `GET /tap`, `GET /explain` and the dashboard. It has no body, header or query. */
export interface ExchangeRow {
  readonly id: string;
  /** Unix ms of the complete request head. */
  readonly at: number;
  readonly method: string;
  readonly path: string;
  readonly session: string | null;
  readonly group: string | null;
  readonly model: string | null;
  /** URL of the worker that sent the response, or of the last attempt; of a pair, the decode worker. */
  readonly worker: string | null;
  /** URLs of both workers of a pair. */
  readonly pair: readonly string[] | null;
  /** null if no policy chose: a control request for all engines, or a request that got no worker. */
  readonly policy: string | null;
  /** As `reasonText`. */
  readonly reason: string | null;
  /** The session moved from this worker with this exchange. */
  readonly from: string | null;
  /** 0: no response began. */
  readonly status: number;
  readonly outcome: Outcome;
  /** `error` and `detail`: code and text of the router's own error. */
  readonly error: string | null;
  readonly detail: string | null;
  readonly attempts: number;
  readonly failures: readonly { readonly worker: string; readonly failure: Failure }[];
  readonly ms: number;
  readonly first_byte_ms: number | null;
  /** Of an event stream: vLLM sends its head before the first token. */
  readonly first_token_ms: number | null;
  /** Time in the admission queue; `held_ms` is the time without a worker after that, for the reason `held_for`. */
  readonly queued_ms: number;
  readonly held_ms: number;
  readonly held_for: string | null;
  readonly request_bytes: number;
  readonly response_bytes: number;
  /** As the engine reports them. */
  readonly prompt_tokens: number | null;
  readonly cached_tokens: number | null;
  readonly output_tokens: number | null;
  /** The policy's candidates, if they were recorded. */
  readonly candidates: readonly Candidate[] | null;
}

/** Gets the row of each exchange that ends while `isOn`. */
interface RowListener {
  readonly take: (row: ExchangeRow) => void;
  readonly isOn: () => boolean;
}

const always = (): boolean => true;

/** Makes one row of each finished exchange for all listeners, and none without a listener. */
export class ExchangeRows implements Observer {
  readonly #listeners: RowListener[] = [];
  readonly #options: { readonly sessionHeaders: readonly string[] };
  readonly #policyOf: (x: Exchange) => string;

  constructor(options: { readonly sessionHeaders: readonly string[] }, policyOf: (x: Exchange) => string) {
    this.#options = options;
    this.#policyOf = policyOf;
  }

  /** @returns removes the listener */
  listen(take: RowListener['take'], isOn: RowListener['isOn'] = always): () => void {
    const listener = { take, isOn };
    this.#listeners.push(listener);
    return () => {
      const at = this.#listeners.indexOf(listener);
      if (at >= 0) this.#listeners.splice(at, 1);
    };
  }

  finished(x: Exchange): void {
    let row: ExchangeRow | null = null;
    for (const listener of this.#listeners) {
      if (!listener.isOn()) continue;
      row ??= exchangeRow(x, this.#options.sessionHeaders, this.#policyOf(x));
      listener.take(row);
    }
  }
}

/** Read once: the getter takes a quarter of the time of the whole row (benchmark `json-2k-observed`). */
const timeOriginMs = performance.timeOrigin;

const NO_FAILURES: ExchangeRow['failures'] = [];

export function exchangeRow(x: Exchange, sessionHeaders: readonly string[], policy: string): ExchangeRow {
  const { head, placement, usage, error } = x;
  const isPlaced = placement !== null;
  return {
    id: head.requestId,
    at: Math.round(timeOriginMs + x.startMs),
    method: head.method,
    path: x.clientPath ?? x.path,
    session: sessionOf(x, sessionHeaders) || null,
    group: groupOf(x) || null,
    model: x.model || null,
    worker: x.worker?.url ?? null,
    pair: placement !== null && placement.legs.length > 1 ? placement.legs.map(({ worker }) => worker.url) : null,
    policy: isPlaced ? policy : null,
    reason: isPlaced ? reasonText(x) : null,
    from: x.move?.from ?? null,
    status: x.status ?? 0,
    outcome: x.outcome!,
    error: error?.code ?? null,
    detail: error?.message ?? null,
    attempts: x.attempts,
    failures:
      x.failures.length === 0
        ? NO_FAILURES
        : x.allFailures.map(({ worker, failure }) => ({ worker: worker.url, failure })),
    ms: tenths(x.durationMs),
    first_byte_ms: x.firstByteMs === null ? null : tenths(x.firstByteMs - x.startMs),
    first_token_ms: x.isStream && x.firstTokenMs !== null ? tenths(x.firstTokenMs - x.startMs) : null,
    queued_ms: tenths(x.queuedMs),
    held_ms: tenths(x.heldMs),
    held_for: x.heldFor,
    request_bytes: x.body.bytes,
    response_bytes: x.answerBytes,
    prompt_tokens: usage?.promptTokens ?? null,
    cached_tokens: usage?.cachedTokens ?? null,
    output_tokens: usage?.outputTokens ?? null,
    candidates: x.candidates,
  };
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;
