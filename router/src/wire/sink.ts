import type { ResponseHead } from './response-head.ts';

/** Where an answer comes from: paused while its sink can't take more. */
export interface Source {
  resume(): void;
}

/**
 * Where an answer goes. A client's socket is one sink and takes bytes verbatim; memory and streams are others, so that
 * everything that asks engines for work (a client, a prefill leg, a session, a replay) takes the same road.
 *
 * Order of calls: `head`, then any number of `body`, then `end` or `cut`; `flush` after each batch of them.
 */
export interface Sink {
  /** True: body bytes come with their chunk lines (if chunked). False: payload only. */
  readonly takesFraming: boolean;
  /** Called back when there is room again after `flush` answered false. */
  source: Source | null;
  /** True: something of what it was given waits in it, and nothing can be put in behind that. Left out: never. */
  readonly hasUnsent?: boolean;
  head(head: ResponseHead): void;
  /** `bytes[start, end)` is valid during the call only. */
  body(bytes: Uint8Array, start: number, end: number): void;
  /** All that one read brought has been handed over. @returns false: pause the source until `source.resume()`. */
  flush(): boolean;
  /**
   * Calls `done` when `end` may be called, for sinks that make an answer once all of it is here: a large one takes more than one turn
   * of the event loop. Not at all where nobody wants it any more. Left out: at once.
   */
  makeReady?(done: () => void): void;
  /** Calls `done` when everything that it was given has been passed on: before `cut`, for sinks that delay bytes. Left out: at once. */
  whenPassed?(done: () => void): void;
  /** The answer is complete. */
  end(): void;
  /** Forgets what it was given of an answer, if none of it has gone out yet. @returns false: some of it has */
  takeBack?(): boolean;
  /** The answer will never be complete. `finalEvent` are payload that may still go out, '' for none. */
  cut(reason: string, finalEvent: string): void;
}

/** Where a request's body goes, without its head. */
export type BodySink = Required<Pick<Sink, 'hasUnsent' | 'body' | 'flush' | 'end'>>;
