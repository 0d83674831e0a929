import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import type { Plugin } from '../plugin.ts';
import { Refused } from '../plugin.ts';

/**
 * Adds what another engine knows to a response, or to each of its events. Those larger than `LARGE_BYTES` are transferred to the body
 * thread.
 */
export interface AnswerMerge extends Plugin {
  responseBody(exchange: Exchange, body: Buffer): Buffer | Promise<Buffer>;
  responseEvent(exchange: Exchange, event: Buffer): Buffer | Promise<Buffer>;
}

/** Runs a call that changes a response. Its failure is an error of the router, not of a plugin. */
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
