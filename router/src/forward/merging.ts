import type { Exchange } from '../exchange.ts';
import { bufferOf } from '../kit/bytes.ts';
import { RouterError } from '../kit/errors.ts';
import { type Plugin, Refused } from '../plugin.ts';

/**
 * Puts what another engine knows into an answer, or into each event of it: small ones at once, large ones on the thread that reads
 * large bodies. Those are given away.
 */
export interface Merging extends Plugin {
  /** How much it puts in, at most. */
  readonly bytes: number;
  responseBody(exchange: Exchange, body: Buffer): Buffer | Promise<Buffer>;
  responseEvent(exchange: Exchange, event: Buffer): Buffer | Promise<Buffer>;
}

/** What the thread made of an answer; should it fail, that is no fault of a plugin. */
export async function fromThread(answer: Promise<Uint8Array>): Promise<Buffer> {
  try {
    return bufferOf(await answer);
  } catch (error) {
    throw new Refused(new RouterError('internal_error', `Could not process the response: ${(error as Error).message}`));
  }
}
