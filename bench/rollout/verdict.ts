// Whether the virtual runs foretell the runs over sockets.
export interface Pair {
  readonly name: string;
  /** Simulated seconds. */
  readonly virtual: number;
  readonly sockets: number;
}

/** Virtual makespans closer than this have no order to keep. */
export const orderMargin = 0.08;
/** How far a makespan over sockets may be off. */
export const makespanMargin = 0.15;

export interface Verdict {
  /** In words, one for each makespan that is too far off and each two policies in another order. */
  readonly faults: readonly string[];
  /** Pairs of policies that have an order to keep. */
  readonly ordered: number;
}

export function judge(pairs: readonly Pair[]): Verdict {
  const faults = pairs
    .filter(({ virtual, sockets }) => Math.abs(sockets / virtual - 1) > makespanMargin)
    .map(
      ({ name, virtual, sockets }) => `${name}: ${sockets.toFixed(0)} s over sockets, ${virtual.toFixed(0)} s virtual`,
    );
  let ordered = 0;
  for (const faster of pairs) {
    for (const slower of pairs) {
      if (slower.virtual <= faster.virtual * (1 + orderMargin)) continue;
      ordered += 1;
      if (slower.sockets <= faster.sockets)
        faults.push(`${slower.name} beats ${faster.name} over sockets, and loses to it in virtual time`);
    }
  }
  return { faults, ordered };
}
