/** Answers once, when every sequence of a job has ended. */

import type { Sink } from '../model/core.ts';

export class WholeOut implements Sink {
  readonly #answer: () => void;
  #open: number;

  constructor(sequenceCount: number, answer: () => void) {
    this.#open = sequenceCount;
    this.#answer = answer;
  }

  progressed(): void {}

  ended(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#answer();
  }
}
