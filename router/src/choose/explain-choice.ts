import type { Config } from '../config/options.ts';
import type { Candidate, PlacedRequest } from '../placed-request.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Policy } from './policy.ts';

/** Of which choices the candidates are recorded: those that gave a session another worker, or all. */
export type Explains = 'none' | 'sessions' | 'all';

/** All for the debug log. Otherwise not for requests without a session, each of which is a choice (benchmark `json-2k`). */
export const explainsOf = ({ explainBufferBytes }: Config, isDebugLogged: boolean): Explains =>
  isDebugLogged ? 'all' : explainBufferBytes > 0 ? 'sessions' : 'none';

/** More candidates would cost every choice more than they tell: the best, beside the one that was taken, show why it was. */
const MAX_CANDIDATES = 4;

let costs = new Float64Array(16);

/**
 * What spoke for and against the best few workers of a choice, with the one that was chosen and the one that the session left.
 * Of a pair: of each role. Called right after the policy chose. null: the policy can't tell.
 */
export function explainChoice(x: PlacedRequest, policy: Policy, workers: readonly Worker[]): Candidate[] | null {
  if (policy.explain === undefined) return null;
  const legs = x.placement?.legs ?? [];
  if (legs.length < 2) return policy.explain(x, shortlist(x, policy, workers, legs[0]?.worker ?? null));
  return legs.flatMap(({ worker, role }) => {
    const ofRole = workers.filter((each) => each.role === role);
    return policy.explain!(x, shortlist(x, policy, ofRole, worker));
  });
}

function shortlist(
  x: PlacedRequest,
  policy: Policy,
  workers: readonly Worker[],
  chosen: Worker | null,
): readonly Worker[] {
  if (workers.length <= MAX_CANDIDATES) return workers;
  const left = x.move?.from;
  let among = policy.compared?.(x, workers) ?? workers;
  if (left !== undefined && among !== workers && !among.some(({ url }) => url === left)) {
    among = [...among, ...workers.filter(({ url }) => url === left)];
  }
  if (costs.length < among.length) costs = new Float64Array(2 * among.length);
  costs.fill(0, 0, among.length);
  policy.costs?.(x, among, costs);
  const best: number[] = [];
  for (let i = 0; i < among.length; i++) {
    const worker = among[i]!;
    if (worker === chosen || worker.url === left) costs[i] = -Infinity;
    let at = Math.min(best.length, MAX_CANDIDATES);
    while (at > 0 && costs[i]! < costs[best[at - 1]!]!) at--;
    if (at === MAX_CANDIDATES) continue;
    best.splice(at, 0, i);
    best.length = Math.min(best.length, MAX_CANDIDATES);
  }
  return best.map((i) => among[i]!);
}
