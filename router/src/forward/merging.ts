import type { Exchange } from '../exchange.ts';
import type { Plugin } from '../plugin.ts';

/** Puts what another engine knows into an answer. */
export interface Merging extends Plugin {
  /** How much it puts in, at most. */
  readonly bytes: number;
  /** At once: small bodies are merged here. */
  responseBody(exchange: Exchange, body: Buffer): Buffer;
  /**
   * As `responseBody`, on the thread that reads large bodies; for one answer at most.
   * @param body given away, and what is put in with it
   */
  largeBody(body: Buffer): Promise<Buffer>;
}
