import { TimeLimit } from '../../kit/time-limit.ts';
import type { Logger } from '../../observe/log.ts';
import { GrowthLog } from './growth-log.ts';

/** Maximum time for which the end of a response is held. */
export const LIMIT_MS = 250;

/** Holds the ends of captured answers until their turns are in the store, or until `LIMIT_MS` have passed. */
export class StoredFirst {
  /** Ends that were sent before their turns were in the store. */
  sentEarly = 0;
  readonly #log: Logger;
  readonly #early = new GrowthLog();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param stored resolves with false where the store does not take the turns */
  whenStored(stored: Promise<boolean>, release: () => void): void {
    let isSent = false;
    const send = (isStored: boolean): void => {
      limit.clear();
      if (isSent) return;
      isSent = true;
      if (!isStored) this.#countEarly();
      release();
    };
    const limit = new TimeLimit(LIMIT_MS, () => send(false));
    stored.then(send, () => send(false));
  }

  #countEarly(): void {
    this.sentEarly++;
    this.#early.log({ answers: this.sentEarly }, (more) =>
      this.#log.warn(
        { ...more, heldMs: LIMIT_MS },
        'responses were sent before their turns were stored: a SIGKILL of the router now would lose these turns',
      ),
    );
  }
}
