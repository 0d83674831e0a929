import type { Hono } from 'hono';
import type { AnswerEar, Exchange } from './exchange.ts';
import { RouterError } from './kit/errors.ts';
import type { Worker } from './fleet/worker.ts';
import type { ResponseHead } from './wire/response-head.ts';

/** What a plugin says to a request that it doesn't let in. */
export interface PluginRefusal {
  /** 400 to 599. */
  readonly status: number;
  /** For the client: what is wrong and what to do. */
  readonly message: string;
  /** Seconds after which a retry makes sense. */
  readonly retryAfterSecs?: number;
}

/** Gets an answer in two parts: values that are too large to be held, and the rest. Bytes are valid during the call only. */
export interface ValueTaker {
  /** The answer in its order, with a mark in the place of each value: the mark is in the answer before the first piece comes. */
  rest(bytes: Buffer, start: number, end: number): void;
  /** A part of the value that has this mark. Marks are ASCII, differ from each other, and stand nowhere else in an answer. */
  piece(mark: string, bytes: Buffer, start: number, end: number): void;
}

/** Hands the bytes of an answer to a `ValueTaker`. */
export interface ValueCutter {
  push(bytes: Buffer, start: number, end: number): void;
}

/** What a plugin says to a request in an engine's place. */
export interface PluginAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/** Where a plugin puts endpoints of its own: the first for whoever may send requests, the second for whoever may steer. */
export interface PluginRoutes {
  readonly forClients: Hono;
  readonly forAdmins: Hono;
}

/**
 * What takes part in the road: named phases, all optional, here in the order in which an exchange meets them. A phase that no
 * loaded plugin has costs nothing.
 *
 * A phase gets bytes and answers bytes; answering the same buffer means "unchanged". Numbers in a body may exceed 2^53
 * (bootstrap_room, seq_id, seeds): change your own field in the bytes, never parse and re-serialise the whole.
 */
export interface Plugin {
  readonly name: string;
  /**
   * First of all: may put another target into `exchange.head`, as if the client had asked for that. Access, the API and everything
   * else go by what it leaves there.
   */
  retarget?(exchange: Exchange): void;
  /** Whether it takes part in this exchange; asked once, when the request's head is known. Default: always. */
  appliesTo?(exchange: Exchange): boolean;
  /**
   * May set what the exchange is placed by: `key`, `group`, `model`, `isLastTurn`, `target`. What is set here is not looked for
   * in the request. The body is not here yet; who needs it waits for it (`exchange.body.whenComplete`).
   */
  classify?(exchange: Exchange): void | Promise<void>;
  /** Whether it may go on, before it takes a place or waits for one. null: it may. */
  admit?(exchange: Exchange): PluginRefusal | null | Promise<PluginRefusal | null>;
  /** Answers it in an engine's place, before it takes a place or waits for one. null: an engine does. The first answer counts. */
  answer?(exchange: Exchange): PluginAnswer | null | Promise<PluginAnswer | null>;
  /**
   * Who may get it, of the workers that could; the policy chooses among those. Asked before every attempt, and before it is
   * decided whether there is another one; `exchange.tried` are left out afterwards.
   */
  choose?(exchange: Exchange, workers: readonly Worker[]): readonly Worker[];
  /** Its `requestBody` is called without a body too, with an empty buffer. */
  readonly takesEmptyBodies?: true;
  /** The whole request body (not called without one), once per attempt: the worker that will get it is chosen already. */
  requestBody?(exchange: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer>;
  /**
   * Listens to the engine's answer, as it came and before anybody changes it; called when its head is here. The bytes go out
   * as if nobody listened, and what an ear throws is logged and harms nobody.
   */
  hearAnswer?(exchange: Exchange, head: ResponseHead): AnswerEar | null;
  /** Before the answer's head goes out. */
  responseHead?(exchange: Exchange, head: ResponseHead): void;
  /**
   * Takes values out of the answer that are too large to be held for `responseEvent` or `responseBody`, which get the answer without
   * them. Used where no other plugin changes the answer, and only together with `beforeValue`.
   */
  cutValues?(exchange: Exchange, head: ResponseHead, taker: ValueTaker): ValueCutter | null;
  /**
   * The beginning of an event or of a body, up to and with the mark of a value: as `responseEvent` or `responseBody` will answer the whole
   * of it, as far as that is up to the mark. Without the mark in it the value does not go out.
   */
  beforeValue?(exchange: Exchange, beginning: Buffer): Buffer | Promise<Buffer>;
  /**
   * One event of an event stream, with the empty line that ends it. An empty buffer drops the event. One of megabytes is best changed
   * on a thread: those behind it wait, and so does the engine.
   */
  responseEvent?(exchange: Exchange, event: Buffer): Buffer | Promise<Buffer>;
  /** The whole body of an answer that is not an event stream. One of megabytes is best changed on a thread. */
  responseBody?(exchange: Exchange, body: Buffer): Buffer | Promise<Buffer>;
  /** The exchange is over; `exchange.outcome` says how. Can't fail it any more. */
  finished?(exchange: Exchange): void;
  /** Called once, when the router starts: endpoints that are answered beside the router's own. */
  routes?(routes: PluginRoutes): void;
  /** So long each of its answers may take, in place of `--plugin-timeout-ms`: for what is slow by nature. */
  readonly timeoutMs?: number;
  /** The router stops; no exchange is under way any more. */
  close?(): void | Promise<void>;
}

/** A plugin without its name, which the module that makes it has. */
export type PluginPhases = Omit<Plugin, 'name'>;

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
    } catch (error) {
      failure ??= pluginError(plugin, error);
    }
  }
  return failure;
}

/** Those whose part is the body of this request. @param bytes how many bytes it has */
export const bodyPlugins = (plugins: readonly Plugin[], bytes: number): readonly Plugin[] =>
  plugins.filter((plugin) => plugin.requestBody !== undefined && (bytes > 0 || plugin.takesEmptyBodies === true));

/** What plugins leave of the workers that could get an exchange; the failure of one that can't say. */
export function narrowed(x: Exchange, workers: readonly Worker[]): readonly Worker[] | RouterError {
  let left = workers;
  for (const plugin of x.plugins) {
    if (plugin.choose === undefined || left.length === 0) continue;
    try {
      left = plugin.choose(x, left);
    } catch (error) {
      return pluginError(plugin, error);
    }
    if (left.length === 0) {
      return new RouterError(
        'no_available_workers',
        `The plugin "${plugin.name}" excluded every worker for this request.`,
      );
    }
  }
  return left;
}
