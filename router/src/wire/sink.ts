import type { TakePart } from './chunked.ts';
import type { ResponseHead } from './response-head.ts';

/** Produces a response; paused while its sink is full. */
export interface Source {
  resume(): void;
}

/**
 * Takes a response. A client's socket is one sink and takes bytes verbatim; memory and streams are others, so that all requests to
 * engines (of a client, a prefill leg, a chat session, a replay) are sent by the same code.
 *
 * Order of calls: `head`, then any number of `body`, then `end` or `cut`; `flush` after each batch of them.
 */
export interface Sink {
  /** True: body bytes come with their chunk lines (if chunked). False: payload only. */
  readonly takesFraming: boolean;
  /** Gets the payload of a body that comes with chunk lines, before `body` gets that part; null: nothing does. */
  readonly payloadObserver: TakePart | null;
  /** Its `resume` is called when there is room again after `flush` returned false. */
  source: Source | null;
  /** True: bytes wait in the sink, so nothing can be inserted now. */
  readonly hasUnsent: boolean;
  head(head: ResponseHead): void;
  /** `bytes[start, end)` is valid during the call only. */
  body(bytes: Buffer, start: number, end: number): void;
  /** All bytes of one read were passed. @returns false: the source pauses until `source.resume()` */
  flush(): boolean;
  /**
   * Calls `done` when `end` may be called, for sinks that change a complete response: a large one takes several turns of the event loop.
   * Never calls it if the response is not needed any more.
   */
  makeReady(done: () => void): void;
  /** Calls `done` when all bytes were passed on: before `cut`, for sinks that delay bytes. */
  whenPassed(done: () => void): void;
  /** The response is complete. */
  end(): void;
  /** Drops the response if none of it was sent. @returns false: some of it was */
  takeBack(): boolean;
  /** The response is truncated. `finalEvent`: payload that may still be sent; '' for none. */
  cut(reason: string, finalEvent: string): void;
}

/** Takes the body of a request, without its head. */
export type BodySink = Pick<Sink, 'hasUnsent' | 'body' | 'flush' | 'end'>;
