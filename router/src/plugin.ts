import type { Hono } from 'hono';
import type { FailedAttempt } from './exchange.ts';
import type { RouterError } from './kit/errors.ts';
import type { Phases } from './phases/table.ts';

/** What a plugin says to a request that it does not admit. */
export interface PluginRefusal {
  /** 400 to 599. */
  readonly status: number;
  /** For the client: what is wrong and what to do. */
  readonly message: string;
  /** Seconds after which a retry makes sense. */
  readonly retryAfterSecs?: number;
}

/** What a plugin says that has no part in a request. */
export interface NoPart {
  readonly takesPart: false;
}

/** A plugin's response in place of an engine's. */
export interface PluginAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/** An attempt that failed before a response was passed on. */
export interface AttemptFailure extends FailedAttempt {
  /** The status, or what the system says of the connection. */
  readonly detail: string;
  /** Another attempt follows. */
  readonly willRetry: boolean;
}

/** Gets a response in two parts: values that are too large to be kept, and the rest. Bytes are valid during the call only. */
export interface ValueTaker {
  /** The response in its order, with a mark in the place of each value: the mark comes before the first piece of its value. */
  rest(bytes: Buffer, start: number, end: number): void;
  /** A part of the value that has this mark. Marks are ASCII, differ from each other, and are nowhere else in the response. */
  piece(mark: string, bytes: Buffer, start: number, end: number): void;
}

/** Passes the bytes of a response to a `ValueTaker`. */
export interface ValueCutter {
  push(bytes: Buffer, start: number, end: number): void;
}

/** Where a plugin adds endpoints: the first app is for clients that may send requests, the second for admins. */
export interface PluginRoutes {
  readonly forClients: Hono;
  readonly forAdmins: Hono;
}

/**
 * What a plugin does: its phases (`phases/table.ts` says when each runs), all optional. A phase that no loaded plugin has costs nothing.
 *
 * A phase that gets bytes returns bytes; the same buffer means "unchanged". Numbers in a body may exceed 2^53 (bootstrap_room, seq_id,
 * seeds): change your own field in the bytes, never parse and re-serialise the whole.
 */
export interface PluginPhases extends Phases {
  /**
   * Only requests whose path, in its normal form, begins with this reach the plugin. Its `retarget`, which runs earlier, sees the client's
   * spelling.
   */
  readonly pathPrefix?: string;
  /** Its `requestBody` is called without a body too, with an empty buffer. */
  readonly takesEmptyBodies?: true;
  /**
   * It asks engines in another form than the client: its `requestBody` is called after those of the other loaded plugins, and it changes
   * responses before they do, so that these see what a client sends and gets.
   */
  readonly isInnermost?: true;
  /** Larger request bodies for its endpoints get 413. Default: 16 MiB. */
  readonly maxBodyBytes?: number;
  /** The timeout of its phases and endpoints, in place of `--plugin-timeout-ms`. */
  readonly timeoutMs?: number;
}

/** A plugin with the name that errors, logs and metrics have. */
export interface Plugin extends PluginPhases {
  readonly name: string;
}

/** Thrown by a plugin that refuses a request with an error of the router. It is not counted as a failure of the plugin. */
export class Refused extends Error {
  readonly refusal: RouterError;

  constructor(refusal: RouterError) {
    super(refusal.message);
    this.refusal = refusal;
  }
}
