import type { Candidate } from '../placed-request.ts';
import type { Leg, Placement, Worker } from '../fleet/worker.ts';
import type { Hold, IndexSize, MoveWhy, Policy } from './policy.ts';
import { isMoveReason } from './reason-text.ts';

/** By the method of a policy: throws if the result is not valid. */
export type ResultChecks = { readonly [Method in keyof Policy]?: (result: unknown, args: readonly unknown[]) => void };

/** Check what TypeScript would have checked in the results of a user's policy. */
export const resultChecks: ResultChecks = {
  choose(choice, [, workers]) {
    const { legs, hold, maxMs } = (choice ?? {}) as { [Key in keyof Placement | keyof Hold]?: unknown };
    const isLeg = (leg: Leg | null): boolean => leg !== null && (workers as readonly Worker[]).includes(leg.worker);
    const isPlacement = Array.isArray(legs) && legs.length > 0 && legs.every(isLeg);
    if (isPlacement || (typeof hold === 'string' && Number.isFinite(maxMs))) return;
    throw new TypeError('choose() has to answer worker.alone of a worker that it was given, or { hold, maxMs }');
  },
  whyMoved(why) {
    const { reason, savedSecs = 0 } = (why ?? {}) as Partial<MoveWhy>;
    if (isMoveReason(reason) && Number.isFinite(savedSecs)) return;
    throw new TypeError('whyMoved() has to return { reason } or { reason, savedSecs }, with a reason of MoveReason');
  },
  heldRank(rank) {
    if (Number.isFinite(rank)) return;
    throw new TypeError('heldRank() has to return a number');
  },
  nextHeld(next, [held]) {
    if (next === null) return;
    for (const x of held as Iterable<unknown>) if (x === next) return;
    throw new TypeError('nextHeld() has to return one of the held requests, or null');
  },
  compared(compared, [, workers]) {
    if (Array.isArray(compared) && compared.every((worker) => (workers as readonly Worker[]).includes(worker))) return;
    throw new TypeError('compared() has to return an array of workers that it was given');
  },
  explain(candidates) {
    if (Array.isArray(candidates) && candidates.every(isCandidate)) return;
    throw new TypeError('explain() has to return an array of { worker: URL, terms: { NAME: number } }');
  },
  indexSize(size) {
    const { blocks, bytes } = (size ?? {}) as Partial<IndexSize>;
    if (Number.isFinite(blocks) && Number.isFinite(bytes)) return;
    throw new TypeError('indexSize() has to return { blocks, bytes }');
  },
  describe(state) {
    const isObject = typeof state === 'object' && state !== null && !(state instanceof Promise);
    if (!isObject) throw new TypeError('describe() has to return an object');
    // Throws if it can't be sent: a BigInt, a cycle.
    JSON.stringify(state);
  },
};

function isCandidate(candidate: Candidate | null): boolean {
  const { worker, terms } = candidate ?? {};
  if (typeof worker !== 'string' || typeof terms !== 'object' || terms === null) return false;
  return Object.values(terms).every((term) => typeof term === 'number');
}
