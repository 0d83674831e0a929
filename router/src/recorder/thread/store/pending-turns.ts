import type { Turn } from '../../shared/turn.ts';
import { turnBytes } from './store.ts';

/** Turns that are to be written, in order, one version of each. */
export class PendingTurns {
  /** A request or a response that several turns share, as the choices of one response do, counts once. */
  bytes = 0;
  #turns: Turn[] = [];
  /** How many turns have a request or response. */
  readonly #holders = new Map<Uint8Array, number>();

  get all(): readonly Turn[] {
    return this.#turns;
  }

  get(id: string): Turn | null {
    return this.#turns.findLast((turn) => turn.id === id) ?? null;
  }

  add(turn: Turn): void {
    this.#turns.push(turn);
    this.#hold(turn);
  }

  replace(turn: Turn, by: Turn): void {
    this.#turns[this.#turns.lastIndexOf(turn)] = by;
    this.#release(turn);
    this.#hold(by);
  }

  /** @returns those that were pending: others were removed, or replaced by a later version */
  remove(turns: ReadonlySet<Turn>): readonly Turn[] {
    const removed = this.#turns.filter((turn) => turns.has(turn));
    this.#turns = this.#turns.filter((turn) => !turns.has(turn));
    for (const turn of removed) this.#release(turn);
    return removed;
  }

  #hold(turn: Turn): void {
    this.bytes += turnBytes(turn);
    for (const body of bodiesOf(turn)) {
      const holders = this.#holders.get(body) ?? 0;
      if (holders > 0) this.bytes -= body.length;
      this.#holders.set(body, holders + 1);
    }
  }

  #release(turn: Turn): void {
    this.bytes -= turnBytes(turn);
    for (const body of bodiesOf(turn)) {
      const holders = this.#holders.get(body)! - 1;
      if (holders > 0) this.bytes += body.length;
      if (holders > 0) this.#holders.set(body, holders);
      else this.#holders.delete(body);
    }
  }
}

const bodiesOf = ({ request, answer }: Turn): Uint8Array[] => [request, answer].filter((body) => body !== null);
