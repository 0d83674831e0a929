import type { PlacedRequest, Placer } from '../placed-request.ts';
import type { Role, Worker } from '../fleet/worker.ts';
import { type Hold, type Policy, sumOfSizes } from './policy.ts';
import { type NamedPolicy, strength } from './policy-table.ts';

type Half = 'prefill' | 'decode';

/** The state of both policies for one exchange. */
class Notes {
  readonly owner: Policy;
  readonly of: Record<Half, unknown> = { prefill: null, decode: null };

  constructor(owner: Policy) {
    this.owner = owner;
  }
}

const halfOf = (role: Role): Half => (role === 'prefill' ? 'prefill' : 'decode');

/**
 * Two policies as one. Each chooses among the workers of its role and is notified of those only. Either may hold.
 */
export function pairPolicy(prefill: NamedPolicy, decode: NamedPolicy): Policy {
  const of: Readonly<Record<Half, Policy>> = { prefill: prefill.policy, decode: decode.policy };
  const both = [of.prefill, of.decode] as const;

  function notesOf(x: PlacedRequest): Notes {
    const note = x.policyState;
    if (note instanceof Notes && note.owner === pair) return note;
    const notes = new Notes(pair);
    x.policyState = notes;
    return notes;
  }

  /** Calls one of the two with its own state in place. */
  function as<T>(half: Half, x: PlacedRequest, call: (policy: Policy) => T): T {
    const notes = notesOf(x);
    x.policyState = notes.of[half];
    try {
      return call(of[half]);
    } finally {
      notes.of[half] = x.policyState;
      x.policyState = notes;
    }
  }

  /** The next request among those that one of the two holds. It may look at a few of very many: only those get its state. */
  function nextOf(half: Half, held: Iterable<PlacedRequest>, workers: readonly Worker[]): PlacedRequest | null {
    const seen = new Map<PlacedRequest, Notes>();
    function* withState(): Generator<PlacedRequest> {
      for (const x of held) {
        if (!seen.has(x)) {
          const notes = notesOf(x);
          seen.set(x, notes);
          x.policyState = notes.of[half];
        }
        yield x;
      }
    }
    try {
      return of[half].nextHeld!({ [Symbol.iterator]: withState }, ofRole(workers, half));
    } finally {
      for (const [x, notes] of seen) {
        notes.of[half] = x.policyState;
        x.policyState = notes;
      }
    }
  }

  /** Holds for one of the two, in its order. */
  function holderFor(half: Half): Placer {
    const { nextHeld, heldRank } = of[half];
    return {
      partOf: pair,
      ...(nextHeld && { nextHeld: (held, workers) => nextOf(half, held, workers) }),
      ...(heldRank && { heldRank: (x) => as(half, x, (policy) => policy.heldRank!(x)) }),
    };
  }

  const rolesOf = (x: PlacedRequest): readonly Role[] => x.roles ?? ['prefill', 'decode'];
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
          x.placer = holders[half];
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
    // Both must be notified, whatever the first one returns.
    sessionEnded: (session) => both.map((policy) => policy.sessionEnded?.(session) ?? false).includes(true),
    // The session stays at its decode engine.
    hashes: (x) => as('decode', x, (policy) => policy.hashes?.(x) === true),
    flushed: (worker, why) => of[halfOf(worker.role)].flushed?.(worker, why),
    compared: (x, workers) => as(halfOf(workers[0]!.role), x, (policy) => policy.compared?.(x, workers) ?? workers),
    costs: (x, workers, costs) => as(halfOf(workers[0]!.role), x, (policy) => policy.costs?.(x, workers, costs)),
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
  if (of.decode.homeOf !== undefined) pair.homeOf = (session) => of.decode.homeOf!(session);
  if (both.some((policy) => policy.indexSize !== undefined)) {
    pair.indexSize = () => sumOfSizes(both.flatMap((policy) => policy.indexSize?.() ?? []));
  }
  const holders: Readonly<Record<Half, Placer>> = { prefill: holderFor('prefill'), decode: holderFor('decode') };
  return pair;
}
