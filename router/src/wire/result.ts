import { RouterError } from '../kit/errors.ts';
import type { Refusal } from './request-head.ts';
import type { ResponseHead } from './response-head.ts';

/** Why an attempt failed before any byte of a response was passed on. */
export type Failure =
  /** No connection came about: the engine did not get the request. */
  | 'connect'
  /** A kept-alive connection broke at once, without a byte of a response: see `UpstreamConnection.isStale`. */
  | 'stale'
  /** The connection broke after the request, or a part of it, was sent. */
  | 'reset'
  /** The connection broke inside the head of a response. */
  | 'cut_head'
  /** The response is not HTTP. */
  | 'bad_answer'
  /** The engine responded with an error that another worker may not have (`--retry-statuses`). */
  | 'status'
  /** No response began in time (`--first-byte-timeout-secs`). */
  | 'first_byte_timeout'
  /** The engine was proven to hang before a byte of its response came. */
  | 'hung'
  /** The response broke off, and another engine continues it (`--resume`). */
  | 'cut'
  /** The same, of an engine that was proven to hang. */
  | 'cut_hung'
  /** The engine aborted the generation for a weight swap, and another one continues it. */
  | 'aborted'
  /** A prefill engine responded well, but with nothing that lets a decode engine continue. */
  | 'no_handover';

/** Why a response was truncated. */
export type CutCode = 'upstream_reset' | 'stream_idle_timeout' | 'engine_hung';

/** How an attempt, a pair, a request to many engines, or a client's request ended. */
export type Result =
  /** The whole response was passed on, whatever its status. */
  | { readonly kind: 'complete' }
  /** The response was truncated after it began. */
  | { readonly kind: 'cut'; readonly code: CutCode; readonly detail: string }
  /** No response began. */
  | { readonly kind: 'failed'; readonly failure: Failure; readonly detail: string }
  /** The router refuses it, or ends it. */
  | { readonly kind: 'refused'; readonly error: RouterError }
  | { readonly kind: 'client_left' };

export type Failed = Extract<Result, { kind: 'failed' }>;

export const COMPLETE: Result = { kind: 'complete' };
export const CLIENT_LEFT: Result = { kind: 'client_left' };

/** Learns what becomes of a `Source`: each layer of the request path is the listener of the layer below it. */
export interface ResultListener<Source> {
  /** The response begins: nothing can be retried any more. */
  began?(source: Source, head: ResponseHead): void;
  /** Called once, last. */
  ended(source: Source, result: Result): void;
}

/** A refusal by the HTTP parser as an error of the router, with the status that fits best. */
export function refusalError({ status, message }: Refusal): RouterError {
  return new RouterError(status === 413 ? 'payload_too_large' : 'bad_request', message, { status });
}
