import { Undefined, type Value, orElse } from './values.ts';

/** The names of a block: a loop, a macro and the like have their own, and see those around them. */
export class Scope {
  readonly #names = new Map<string, Value>();
  readonly #around: Scope | null;

  constructor(around: Scope | null) {
    this.#around = around;
  }

  get(name: string): Value {
    return orElse(this.#find(name), () => new Undefined(`'${name}' is undefined`));
  }

  set(name: string, value: Value): void {
    this.#names.set(name, value);
  }

  #find(name: string): Value | undefined {
    const own = this.#names.get(name);
    return own !== undefined || this.#around === null ? own : this.#around.#find(name);
  }
}
