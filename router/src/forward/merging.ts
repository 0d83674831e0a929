import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import type { Changer } from '../phases/response-sink.ts';
import { Refused } from '../plugin.ts';

/**
 * Puts what another engine knows into an answer, or into each event of it: small ones at once, large ones on the thread that reads
 * large bodies. Those are given away.
 */
export interface Merging extends Changer {
  responseBody(exchange: Exchange, body: Buffer): Buffer | Promise<Buffer>;
  responseEvent(exchange: Exchange, event: Buffer): Buffer | Promise<Buffer>;
}

/** Runs a call that makes an answer. Its failure is an error of the router, not of a plugin. */
export function merge(call: () => Buffer | Promise<Buffer>): Buffer | Promise<Buffer> {
  const failed = (error: unknown): never => {
    throw new Refused(new RouterError('internal_error', `Could not process the response: ${(error as Error).message}`));
  };
  try {
    const made = call();
    return made instanceof Promise ? made.catch(failed) : made;
  } catch (error) {
    return failed(error);
  }
}
