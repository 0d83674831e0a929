import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError, internalError } from '../kit/errors.ts';
import { throwLater } from '../kit/throw-later.ts';
import { pluginFailed } from './plugin-failed.ts';
import { type NoPart, type Plugin, type PluginAnswer, type PluginRefusal, Refused } from '../plugin.ts';
import type { Sink } from '../wire/sink.ts';
import { listeningSink } from './listening-sink.ts';
import { responseSink } from './response-sink.ts';
import { type PhaseName, problemOfFacts } from './table.ts';

/** A body on its way through `requestBody`. */
export interface BodyPassage {
  /** The result is not needed any more. */
  readonly isOver: () => boolean;
  readonly done: (body: Buffer | null) => void;
  readonly failed: (error: RouterError) => void;
}

/** The plugins that take part in one exchange. */
export class PluginChain {
  readonly #plugins: readonly Plugin[];

  constructor(plugins: readonly Plugin[]) {
    this.#plugins = plugins;
  }

  get isEmpty(): boolean {
    return this.#plugins.length === 0;
  }

  has(phase: PhaseName): boolean {
    for (const plugin of this.#plugins) if (plugin[phase] !== undefined) return true;
    return false;
  }

  without(plugin: Plugin): PluginChain {
    return new PluginChain(this.#plugins.filter((each) => each !== plugin));
  }

  /** Calls a phase of each plugin that has it, for phases that return nothing. */
  tell<Name extends PhaseName>(phase: Name, ...args: Parameters<NonNullable<Plugin[Name]>>): void {
    for (const plugin of this.#plugins) (plugin[phase] as ((...all: unknown[]) => void) | undefined)?.(...args);
  }

  /** Calls `classify` of each plugin, then `admit`, then `answer`. @param then gets the first refusal or answer; null: go on */
  async settle(x: Exchange, then: (settled: RouterError | PluginAnswer | null) => void): Promise<void> {
    const settled = await this.#settle(x);
    try {
      then(settled);
    } catch (error) {
      throwLater(error);
      x.ended(x, { kind: 'refused', error: internalError() });
    }
  }

  async #settle(x: Exchange): Promise<RouterError | PluginAnswer | null> {
    for (const phase of ['classify', 'admit', 'answer'] as const) {
      for (const plugin of this.#plugins) {
        try {
          const asked = plugin[phase]?.(x);
          const said: unknown = (asked instanceof Promise ? await asked : asked) ?? null;
          if (phase === 'classify' && (said as NoPart | null)?.takesPart === false)
            x.plugins = x.plugins.without(plugin);
          if (said === null || phase === 'classify') continue;
          return phase === 'admit' ? refusalOf(said as PluginRefusal) : (said as PluginAnswer);
        } catch (error) {
          // What it set may be of a wrong type, and what reads it later is not guarded.
          if (problemOfFacts(x) !== null) x.forgetFacts();
          return pluginError(plugin, error);
        }
      }
    }
    return null;
  }

  /** Some phase of `settle` is there. */
  get settles(): boolean {
    return this.has('classify') || this.has('admit') || this.has('answer');
  }

  /** @returns the workers that the plugins leave of those that could get the exchange, or the failure of one */
  choose(x: Exchange, workers: readonly Worker[]): readonly Worker[] | RouterError {
    let left = workers;
    for (const plugin of this.#plugins) {
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

  /**
   * Passes the request's body through `requestBody` of each plugin, synchronously if it is complete and all of them return at once. Waits for
   * the whole body, so only if `has('requestBody')`. `done` gets null if no plugin takes it.
   */
  requestBody(x: Exchange, worker: Worker, passage: BodyPassage): void {
    x.body.whenJoined((body) => {
      if (passage.isOver()) return;
      x.engineTarget = null;
      const plugins = this.#plugins.filter((plugin) => takesBody(plugin, body.length));
      if (plugins.length === 0) passage.done(null);
      else passBody({ x, worker, ...passage }, body, plugins);
    });
  }

  /**
   * @param first a change of the router's own: plugins get the response as if the engine had sent it so
   * @returns the exchange's sink, after the plugins that change or observe the response
   */
  sink(x: Exchange, onFailure: (error: RouterError) => void, first: Plugin | null = null): Sink {
    if (this.isEmpty && first === null) return x.sink;
    const failed = (plugin: Plugin, error: unknown): void => onFailure(pluginError(plugin, error));
    const sink = listeningSink(x, this.#plugins, responseSink(x, this.#plugins, failed, x.sink));
    return first === null ? sink : responseSink(x, [first], failed, sink);
  }
}

export const NO_PLUGINS = new PluginChain([]);

/** The plugins of a router. */
export class Plugins {
  readonly #plugins: Plugin[];
  #retargets: boolean;
  /** Mostly the next request has the same path: to compare it with each prefix costs more (benchmark `json-2k`). */
  #last: { readonly path: string; readonly asked: readonly Plugin[] } | null = null;

  constructor(plugins: readonly Plugin[]) {
    this.#plugins = [...plugins];
    this.#retargets = plugins.some(({ retarget }) => retarget !== undefined);
  }

  /** Adds a plugin of the router's own before the others; exchanges that have begun do not get it. */
  addFirst(plugin: Plugin): void {
    this.#plugins.unshift(plugin);
    this.#last = null;
    this.#retargets ||= plugin.retarget !== undefined;
  }

  /** @returns the failure of a plugin */
  retarget(x: Exchange): RouterError | null {
    if (!this.#retargets) return null;
    const { target } = x.head;
    // The path is not known yet.
    const failure = this.#askAll(target, (plugin) => plugin.retarget?.(x));
    if (failure !== null) x.head.target = target;
    if (x.head.target !== target) x.clientTarget = target;
    return failure;
  }

  /** Determines which plugins take part. @returns the failure of a plugin that could not say */
  takePart(x: Exchange): RouterError | null {
    const path = x.clientPath ?? x.path;
    if (this.#askedAbout(path).length === 0) return null;
    const taking: Plugin[] = [];
    const failure = this.#askAll(path, (plugin) => {
      if (plugin.appliesTo?.(x) ?? true) taking.push(plugin);
    });
    if (taking.length > 0) x.plugins = new PluginChain(taking);
    return failure;
  }

  #askAll(path: string, ask: (plugin: Plugin) => void): RouterError | null {
    let failure: RouterError | null = null;
    for (const plugin of this.#askedAbout(path)) {
      try {
        ask(plugin);
      } catch (error) {
        failure ??= pluginError(plugin, error);
      }
    }
    return failure;
  }

  #askedAbout(path: string): readonly Plugin[] {
    if (this.#last?.path !== path) {
      this.#last = { path, asked: this.#plugins.filter(({ pathPrefix = '' }) => path.startsWith(pathPrefix)) };
    }
    return this.#last.asked;
  }
}

interface Passing extends BodyPassage {
  readonly x: Exchange;
  readonly worker: Worker;
}

function passBody(passage: Passing, body: Buffer, [plugin, ...others]: readonly Plugin[]): void {
  if (plugin === undefined) return passage.done(body);
  const next = (changed: Buffer): void => {
    if (!passage.isOver()) passBody(passage, changed, others);
  };
  const failed = (error: unknown): void => passage.failed(pluginError(plugin, error));
  let made: Buffer | Promise<Buffer>;
  try {
    made = plugin.requestBody!(passage.x, body, passage.worker);
  } catch (error) {
    return failed(error);
  }
  if (made instanceof Promise) made.then(next, failed);
  else next(made);
}

const takesBody = (plugin: Plugin, bytes: number): boolean =>
  plugin.requestBody !== undefined && (bytes > 0 || plugin.takesEmptyBodies === true);

const refusalOf = ({ status, message, retryAfterSecs = 0 }: PluginRefusal): RouterError =>
  new RouterError('plugin_refused', message, { status, retryAfterSecs });

/** A plugin's failure, in words for the client. */
function pluginError(plugin: Plugin, error: unknown): RouterError {
  if (error instanceof Refused) return error.refusal;
  return pluginFailed(plugin.name, error);
}
