import type { Logger } from '../../observe/log.ts';

/** So long the end of an answer is held at most. */
const LIMIT_MS = 250;
/** Ends that were sent early are logged once in so long. */
const LOG_MS = 60_000;

/** Holds the ends of captured answers until their turns are in the store, or until `LIMIT_MS` have passed. */
export class StoredFirst {
  /** Ends that were sent before their turns were in the store. */
  sentEarly = 0;
  readonly #log: Logger;
  #loggedMs = -Infinity;
  #logged = 0;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param stored resolves with false where the store does not take the turns */
  whenStored(stored: Promise<boolean>, release: () => void): void {
    let isSent = false;
    const send = (isStored: boolean): void => {
      clearTimeout(timer);
      if (isSent) return;
      isSent = true;
      if (!isStored) this.#countEarly();
      release();
    };
    const timer = setTimeout(() => send(false), LIMIT_MS);
    stored.then(send, () => send(false));
  }

  #countEarly(): void {
    this.sentEarly++;
    const now = performance.now();
    if (now - this.#loggedMs < LOG_MS) return;
    this.#log.warn(
      { answers: this.sentEarly - this.#logged, heldMs: LIMIT_MS },
      'responses were sent before their turns were stored: a SIGKILL of the router now would lose these turns',
    );
    this.#loggedMs = now;
    this.#logged = this.sentEarly;
  }
}
