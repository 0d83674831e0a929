import {
  type Callable,
  Lazy,
  Members,
  type Next,
  TemplateError,
  Undefined,
  type Value,
  equals,
  lengthOf,
  nextOf,
  orElse,
} from './values.ts';

/** The variable `loop`. Items are asked for as late as they can be: what a pass does may change which ones come. */
export class Loop extends Members {
  readonly #source: Value;
  readonly #next: Next;
  /** Items that were asked for before their passes. */
  readonly #ahead: Value[] = [];
  #index = -1;
  #previous: Value | undefined;
  #current: Value | undefined;
  #changed: readonly Value[] | null = null;

  constructor(source: Value) {
    super();
    this.#source = source;
    this.#next = nextOf(source);
  }

  /** The item of the next pass; undefined: it was the last one. */
  next(): Value | undefined {
    const item = this.#ahead.length > 0 ? this.#ahead.shift() : this.#next();
    if (item === undefined) return undefined;
    this.#index++;
    [this.#previous, this.#current] = [this.#current, item];
    return item;
  }

  override member(name: string): Value | undefined {
    return Object.hasOwn(this.#members, name) ? this.#members[name]!() : undefined;
  }

  readonly #members: Readonly<Record<string, () => Value>> = {
    index: () => BigInt(this.#index + 1),
    index0: () => BigInt(this.#index),
    revindex: () => BigInt(this.#length() - this.#index),
    revindex0: () => BigInt(this.#length() - this.#index - 1),
    first: () => this.#index === 0,
    last: () => this.#peek() === undefined,
    length: () => BigInt(this.#length()),
    depth: () => 1n,
    depth0: () => 0n,
    previtem: () => orElse(this.#previous, () => new Undefined('there is no previous item')),
    nextitem: () => orElse(this.#peek(), () => new Undefined('there is no next item')),
    cycle: (): Callable => (args) => {
      if (args.length === 0) throw new TemplateError('no items for cycling given');
      return args[this.#index % args.length]!;
    },
    changed: (): Callable => (args) => {
      const last = this.#changed;
      this.#changed = args;
      return last === null || !equals(last, args);
    },
  };

  #peek(): Value | undefined {
    if (this.#ahead.length === 0) {
      const item = this.#next();
      if (item !== undefined) this.#ahead.push(item);
    }
    return this.#ahead[0];
  }

  #length(): number {
    if (!(this.#source instanceof Lazy)) return lengthOf(this.#source);
    for (let item = this.#next(); item !== undefined; item = this.#next()) this.#ahead.push(item);
    return this.#index + 1 + this.#ahead.length;
  }
}
