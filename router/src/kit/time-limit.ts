/**
 * The longest time for which something from outside is awaited. After a stop of the process (SIGSTOP, a suspended machine, a long garbage
 * collection) timers run before sockets are read, and what came meanwhile came in time: so the limit is exceeded one turn of the event loop
 * after its timer.
 */
export class TimeLimit {
  readonly #timer: NodeJS.Timeout;
  #turn: NodeJS.Immediate | undefined;

  constructor(ms: number, onExceeded: () => void) {
    this.#timer = setTimeout(() => {
      this.#turn = setImmediate(onExceeded);
    }, ms);
  }

  /** The wait does not keep the process alive. */
  unref(): this {
    this.#timer.unref();
    return this;
  }

  /** Nothing is awaited any more. */
  clear(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#turn);
  }
}
