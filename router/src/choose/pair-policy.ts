import type { Exchange } from '../exchange.ts';
import type { Role, Worker } from '../fleet/worker.ts';
import type { Hold, Policy } from './policy.ts';
import { type NamedPolicy, strength } from './policy-table.ts';

type Half = 'prefill' | 'decode';

/** What the two keep with an exchange. */
class Notes {
  readonly owner: Policy;
  readonly of: Record<Half, unknown> = { prefill: null, decode: null };
  /** Whose hold it is under. */
  heldBy: Half | null = null;

  constructor(owner: Policy) {
    this.owner = owner;
  }
}

const halfOf = (role: Role): Half => (role === 'prefill' ? 'prefill' : 'decode');

/**
 * Two policies as one: each is asked about the workers of its own role, and hears of those only. Either may hold an exchange
 * back.
 */
export function pairPolicy(prefill: NamedPolicy, decode: NamedPolicy): Policy {
  const of: Readonly<Record<Half, Policy>> = { prefill: prefill.policy, decode: decode.policy };
  const both = [of.prefill, of.decode] as const;

  function notesOf(x: Exchange): Notes {
    const note = x.placerNote;
    if (note instanceof Notes && note.owner === pair) return note;
    const notes = new Notes(pair);
    x.placerNote = notes;
    return notes;
  }

  /** Calls one of the two with its own note in place. */
  function as<T>(half: Half, x: Exchange, call: (policy: Policy) => T): T {
    const notes = notesOf(x);
    x.placerNote = notes.of[half];
    try {
      return call(of[half]);
    } finally {
      notes.of[half] = x.placerNote;
      x.placerNote = notes;
    }
  }

  /** The next of those whom one of the two holds. */
  function nextOf(half: Half, held: readonly Exchange[]): Exchange | null {
    if (held.length === 0) return null;
    const policy = of[half];
    if (policy.nextHeld === undefined) return held[0]!;
    const notes = held.map(notesOf);
    for (const [i, x] of held.entries()) x.placerNote = notes[i]!.of[half];
    try {
      return policy.nextHeld(held);
    } finally {
      for (const [i, x] of held.entries()) {
        notes[i]!.of[half] = x.placerNote;
        x.placerNote = notes[i]!;
      }
    }
  }

  const rolesOf = (x: Exchange): readonly Role[] => x.roles ?? ['prefill', 'decode'];
  const ofRole = (workers: readonly Worker[], role: Role): readonly Worker[] =>
    workers.filter((worker) => worker.role === role);

  const pair: Policy = {
    needs: strength[of.prefill.needs] > strength[of.decode.needs] ? of.prefill.needs : of.decode.needs,
    knowsSession: (x) =>
      both.every((policy) => strength[policy.needs] < strength.key || (policy.knowsSession?.(x) ?? false)),
    choose(x, workers) {
      const legs = [];
      for (const role of rolesOf(x)) {
        const half = halfOf(role);
        const choice: Hold | { legs: readonly { worker: Worker }[] } = as(half, x, (policy) =>
          policy.choose(x, ofRole(workers, role)),
        );
        if ('hold' in choice) {
          notesOf(x).heldBy = half;
          return choice;
        }
        legs.push({ worker: choice.legs[0]!.worker, role });
      }
      return { legs };
    },
    begun: (x, worker) => as(halfOf(worker.role), x, (policy) => policy.begun?.(x, worker)),
    whyMoved: (x, from, to) =>
      as(halfOf(to.role), x, (policy) => policy.whyMoved?.(x, from, to) ?? { reason: 'policy' as const }),
    ended: (x, worker) => as(halfOf(worker.role), x, (policy) => policy.ended?.(x, worker)),
    // Both are told, whatever the first one says.
    sessionEnded: (session) => both.map((policy) => policy.sessionEnded?.(session) ?? false).includes(true),
    flushed: (worker) => of[halfOf(worker.role)].flushed?.(worker),
    explain: (x, workers) =>
      rolesOf(x).flatMap((role) => as(halfOf(role), x, (policy) => policy.explain?.(x, ofRole(workers, role)) ?? [])),
    describe: () => ({
      prefill: { policy: prefill.name, ...of.prefill.describe?.() },
      decode: { policy: decode.name, ...of.decode.describe?.() },
    }),
    close() {
      for (const policy of both) policy.close?.();
    },
  };
  // Where neither gives an order, all that wait are asked.
  if (both.some((policy) => policy.nextHeld !== undefined)) {
    pair.nextHeld = (held) => {
      const all = [...held];
      const heldBy = (half: Half) => all.filter((x) => (notesOf(x).heldBy ?? 'decode') === half);
      return nextOf('prefill', heldBy('prefill')) ?? nextOf('decode', heldBy('decode'));
    };
  }
  return pair;
}
