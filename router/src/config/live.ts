import { isDeepStrictEqual } from 'node:util';
import type { OptionSpec } from './options/option.ts';
import { type Config, type OptionName, kebab, options } from './options.ts';

/**
 * Gets ready for the next configuration and changes nothing yet; throws, in words for the user, when it can't be had.
 * @returns what puts it in force, null for nothing
 */
export type Preparation = (next: Config, now: Config) => Step | Promise<Step>;
type Step = (() => void) | null;

/** What came of a change of the configuration, as flags: `--policy`. */
export interface Change {
  readonly changed: readonly string[];
  /** They differ, but take a restart. */
  readonly ignored: readonly string[];
}

/**
 * The configuration of a running router, which SIGHUP can change. A change is all or nothing: every preparation is made
 * before anything is put in force, and what is put in force is so within one tick.
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
   * The options of one room: an object that is filled anew when the configuration changes. The room keeps the object and
   * reads what it needs when it needs it; a value that it copied stays as it was. `make` gives the same keys every time.
   */
  of<T extends object>(make: (config: Config) => T): T {
    const made = make(this.#current);
    this.#refills.push((config) => Object.assign(made, make(config)));
    return made;
  }

  /** For what is more than numbers. Called at every reload, also when no option changed: files may have. */
  beforeChange(prepare: Preparation): void {
    this.#preparations.push(prepare);
  }

  /** One change after the other. Rejects, and leaves all as it was, when one preparation fails. */
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
