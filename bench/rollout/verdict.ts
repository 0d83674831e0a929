// Whether the virtual runs predict the runs over sockets.
export interface Pair {
  readonly name: string;
  /** Simulated seconds. */
  readonly virtual: number;
  readonly sockets: number;
}

/** The order of virtual makespans that are closer than this is not checked. */
export const orderMargin = 0.08;
/** The allowed deviation of a makespan over sockets. */
export const makespanMargin = 0.15;
/** The allowed deviation of a figure of a stream over sockets. */
export const streamMargin = 0.05;

export interface Verdict {
  /** A message for each makespan that deviates too far and for each pair of policies in another order. */
  readonly faults: readonly string[];
  /** Pairs of policies whose order is checked. */
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

/** A figure of a stream. */
export interface Figure extends Pair {
  /** Of the virtual runs. */
  readonly deviation: number;
}

/** @returns a message for each figure of a stream that deviates too far, and by more than chance */
export function streamFaults(figures: readonly Figure[]): string[] {
  return figures
    .filter(({ virtual, deviation, sockets }) => {
      const allowed = Math.max(streamMargin * virtual, 2 * deviation);
      return !(Math.abs(sockets - virtual) <= allowed);
    })
    .map(({ name, virtual, sockets }) => `${name}: ${sockets.toFixed(0)} over sockets, ${virtual.toFixed(0)} virtual`);
}
