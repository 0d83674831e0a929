import type { Turn } from '../../shared/turn.ts';

/** The bytes of turns. A request or a response that several turns share, as the choices of one response do, counts once. */
export class SharedBytes<T extends Turn> {
  bytes = 0;
  readonly #bytesOf: (turn: T) => number;
  /** How many turns have a request or response. */
  readonly #holders = new Map<Uint8Array, number>();

  constructor(bytesOf: (turn: T) => number) {
    this.#bytesOf = bytesOf;
  }

  hold(turn: T): void {
    this.bytes += this.#bytesOf(turn);
    for (const body of bodiesOf(turn)) {
      const holders = this.#holders.get(body) ?? 0;
      if (holders > 0) this.bytes -= body.length;
      this.#holders.set(body, holders + 1);
    }
  }

  release(turn: T): void {
    this.bytes -= this.#bytesOf(turn);
    for (const body of bodiesOf(turn)) {
      const holders = this.#holders.get(body)! - 1;
      if (holders > 0) this.bytes += body.length;
      if (holders > 0) this.#holders.set(body, holders);
      else this.#holders.delete(body);
    }
  }
}

const bodiesOf = ({ request, answer }: Turn): Uint8Array[] => [request, answer].filter((body) => body !== null);
