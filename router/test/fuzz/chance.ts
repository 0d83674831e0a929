import assert from 'node:assert/strict';
import { type Random, seededRandom } from '../../src/kit/rng.ts';

/** Seeded choices for generators. A run is repeated with `FUZZ_SEED=<seed>`, which every fuzz test prints. */
export class Chance {
  readonly seed: number;
  readonly random: Random;

  constructor(seed = Number(process.env['FUZZ_SEED'] ?? Math.floor(Math.random() * 2 ** 32))) {
    this.seed = seed;
    this.random = seededRandom(seed);
  }

  /** 0 … below - 1 */
  int(below: number): number {
    return Math.floor(this.random() * below);
  }

  between(least: number, most: number): number {
    return least + this.int(most - least + 1);
  }

  oneIn(count: number): boolean {
    return this.int(count) === 0;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.int(choices.length)]!;
  }

  /** Ascending places at which to cut `length` bytes: a few anywhere, a few next to line ends, or every one. */
  cuts(bytes: Uint8Array): number[] {
    const { length } = bytes;
    if (length <= 100 && this.oneIn(10)) return Array.from({ length: length + 1 }, (_, i) => i);
    const cuts = Array.from({ length: this.between(1, 4) }, () => this.int(length + 1));
    for (let left = this.int(3); left > 0; left--) {
      const lineEnd = bytes.indexOf(13, this.int(length + 1));
      if (lineEnd >= 0) cuts.push(Math.min(length, lineEnd + this.int(4)));
    }
    return cuts.sort((a, b) => a - b);
  }
}

/** How many cases to try: `FUZZ_HEADS` scales all fuzz tests, `share` is this one's part of it. */
export const caseCount = (share: number): number => Math.ceil(Number(process.env['FUZZ_HEADS'] ?? 200_000) * share);

/** What went wrong, one example for each assertion: a fuzz test goes on after a failure, so that all are seen at once. */
export class Failures {
  readonly #examples = new Map<string, string>();

  /** Runs one case. `input` is what it was about. */
  try(input: () => string, run: () => void): void {
    try {
      run();
    } catch (error) {
      const { message, stack } = error as Error;
      const kind = /\w+\.test\.ts:\d+/.exec(stack ?? '')?.[0] ?? message;
      if (!this.#examples.has(kind)) this.#examples.set(kind, `${message}\n    in ${input()}`);
    }
  }

  check(): void {
    assert.equal(this.#examples.size, 0, [...this.#examples.values()].join('\n\n'));
  }
}
