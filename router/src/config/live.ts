import { isDeepStrictEqual } from 'node:util';
import type { OptionSpec } from './options/option.ts';
import { type Config, type OptionName, kebab, options } from './options.ts';

/**
 * Prepares the next configuration and changes nothing yet; throws an error with a message for the user.
 * @returns what applies the change, or null
 */
export type Preparation = (next: Config, now: Config) => Step | Promise<Step>;
type Step = (() => void) | null;

/** The result of a change of the configuration, as flags: `--policy`. */
export interface Change {
  readonly changed: readonly string[];
  /** Changed options that need a restart. */
  readonly ignored: readonly string[];
}

/**
 * The configuration of a running router, which SIGHUP can change. A change is all or nothing: all preparations are made
 * before anything is applied, and everything is applied in one tick.
 */
export class LiveConfig {
  #current: Config;
  readonly #refills: ((config: Config) => void)[] = [];
  readonly #preparations: Preparation[] = [];
  #last: Promise<unknown> = Promise.resolve();

  constructor(config: Config) {
    this.#current = config;
  }

  get current(): Config {
    return this.#current;
  }

  /**
   * The options of one part: an object that each reload fills again. The part keeps the object and reads a value when
   * it needs it; a copied value does not change. `make` must always return the same keys.
   */
  of<T extends object>(make: (config: Config) => T): T {
    const made = make(this.#current);
    this.#refills.push((config) => Object.assign(made, make(config)));
    return made;
  }

  /** For changes that are more than values. Called at every reload, because files may have changed too. */
  beforeChange(prepare: Preparation): void {
    this.#preparations.push(prepare);
  }

  /** Changes run one after the other. Rejects, and changes nothing, if a preparation fails. */
  change(wanted: Config): Promise<Change> {
    const change = this.#last.then(() => this.#change(wanted));
    this.#last = change.catch(() => {});
    return change;
  }

  async #change(wanted: Config): Promise<Change> {
    const now = this.#current;
    const names = (Object.keys(options) as OptionName[]).filter((name) => !isDeepStrictEqual(wanted[name], now[name]));
    const ignored = names.filter((name) => isFixed(name, wanted, now));
    const kept = Object.fromEntries(ignored.map((name) => [name, now[name]]));
    const next = Object.freeze<Config>({ ...wanted, ...kept });
    const steps: (() => void)[] = [];
    for (const prepare of this.#preparations) {
      const step = await prepare(next, now);
      if (step !== null) steps.push(step);
    }
    this.#current = next;
    for (const refill of this.#refills) refill(next);
    for (const step of steps) step();
    return { changed: names.filter((name) => !ignored.includes(name)).map(flagOf), ignored: ignored.map(flagOf) };
  }
}

function isFixed(name: OptionName, wanted: Config, now: Config): boolean {
  const { needsRestart }: OptionSpec = options[name];
  return needsRestart === 'when set or unset'
    ? (wanted[name] === undefined) !== (now[name] === undefined)
    : needsRestart === true;
}

const flagOf = (name: OptionName): string => `--${kebab(name)}`;
