import type { Turn } from '../../shared/turn.ts';
import { SharedBytes } from './shared-bytes.ts';
import { turnBytes } from './store.ts';

/** Turns that are to be written, in order, one version of each. */
export class PendingTurns {
  #turns: Turn[] = [];
  readonly #held = new SharedBytes(turnBytes);

  get all(): readonly Turn[] {
    return this.#turns;
  }

  get bytes(): number {
    return this.#held.bytes;
  }

  get(id: string): Turn | null {
    return this.#turns.findLast((turn) => turn.id === id) ?? null;
  }

  add(turn: Turn): void {
    this.#turns.push(turn);
    this.#held.hold(turn);
  }

  replace(turn: Turn, by: Turn): void {
    this.#turns[this.#turns.lastIndexOf(turn)] = by;
    this.#held.release(turn);
    this.#held.hold(by);
  }

  /** @returns those that were pending: others were removed, or replaced by a later version */
  remove(turns: ReadonlySet<Turn>): readonly Turn[] {
    const removed = this.#turns.filter((turn) => turns.has(turn));
    this.#turns = this.#turns.filter((turn) => !turns.has(turn));
    for (const turn of removed) this.#held.release(turn);
    return removed;
  }
}
