import type { Exchange } from './exchange.ts';
import { RouterError } from './kit/errors.ts';
import type { Worker } from './fleet/worker.ts';
import type { ResponseHead } from './wire/response-head.ts';

/**
 * What changes bytes on the road: named phases, all optional. A phase that no loaded plugin has costs nothing.
 *
 * A phase gets bytes and answers bytes; answering the same buffer means "unchanged". Numbers in a body may exceed 2^53
 * (bootstrap_room, seq_id, seeds): change your own field in the bytes, never parse and re-serialise the whole.
 */
export interface Plugin {
  readonly name: string;
  /** Whether it takes part in this exchange; asked once, when the request's head is known. Default: always. */
  appliesTo?(exchange: Exchange): boolean;
  /** Its `requestBody` is called without a body too, with an empty buffer. */
  readonly takesEmptyBodies?: true;
  /** The whole request body (not called without one), once per attempt: the worker that will get it is chosen already. */
  requestBody?(exchange: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer>;
  /** Before the answer's head goes out. */
  responseHead?(exchange: Exchange, head: ResponseHead): void;
  /** One event of an event stream, with the empty line that ends it. An empty buffer drops the event. */
  responseEvent?(exchange: Exchange, event: Buffer): Buffer;
  /** The whole body of an answer that is not an event stream. */
  responseBody?(exchange: Exchange, body: Buffer): Buffer;
  /** The exchange is over; `exchange.outcome` says how. */
  finished?(exchange: Exchange): void;
}

/** Thrown by a plugin that refuses a request: no fault of its own, and in its own words. */
export class Refused extends Error {
  readonly refusal: RouterError;

  constructor(refusal: RouterError) {
    super(refusal.message);
    this.refusal = refusal;
  }
}

/** A plugin's fault, as its client is told. */
export function pluginError(plugin: Plugin, error: unknown): RouterError {
  if (error instanceof Refused) return error.refusal;
  const reason = error instanceof Error ? error.message : String(error);
  return new RouterError('plugin_failed', `The plugin "${plugin.name}" failed: ${reason}`);
}

/** Settles which plugins take part in an exchange. @returns the failure of one that could not say. */
export function takePart(x: Exchange, plugins: readonly Plugin[]): RouterError | null {
  let failure: RouterError | null = null;
  for (const plugin of plugins) {
    try {
      if (!(plugin.appliesTo?.(x) ?? true)) continue;
      x.plugins = [...x.plugins, plugin];
      if (plugin.requestBody !== undefined) x.body.isToBeJoined = true;
    } catch (error) {
      failure ??= pluginError(plugin, error);
    }
  }
  return failure;
}

/** Those whose part is the body of this request. @param bytes how many bytes it has */
export const bodyPlugins = (plugins: readonly Plugin[], bytes: number): readonly Plugin[] =>
  plugins.filter((plugin) => plugin.requestBody !== undefined && (bytes > 0 || plugin.takesEmptyBodies === true));
