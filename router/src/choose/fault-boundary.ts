import type { PlacedRequest } from '../placed-request.ts';
import type { Policy } from './policy.ts';
import type { NamedPolicy } from './policy-table.ts';
import type { ResultChecks } from './result-checks.ts';

const nothing = (): void => {};
/** First come, first served, so that no held request starves when the policy's own order fails. */
const firstOf = ([first]: Iterable<PlacedRequest>): PlacedRequest | null => first ?? null;

/** `count`: how often this method of the policy has failed by now. */
export type OnFault = (where: keyof Policy, error: unknown, count: number) => void;

/**
 * Contains the faults of a policy. If `choose` throws, that request fails; if any other method throws, the router goes
 * on with a neutral result. A result that is not valid is a fault too. Each fault is reported when its count is a power
 * of two, because one report per request would flood the log.
 */
export function withFaultBoundary(
  { name, policy }: NamedPolicy,
  onFault: OnFault,
  checks: ResultChecks = {},
): NamedPolicy {
  const counts = new Map<keyof Policy, number>();
  const report = (where: keyof Policy, error: unknown): void => {
    const count = (counts.get(where) ?? 0) + 1;
    counts.set(where, count);
    if ((count & (count - 1)) === 0) onFault(where, error, count);
  };
  const calm = <Args extends unknown[], Result>(
    where: keyof Policy,
    call: ((...args: Args) => Result) | undefined,
    fallback: (...args: Args) => Result,
  ): ((...args: Args) => Result) | undefined => {
    const check = checks[where];
    return (
      call &&
      ((...args) => {
        try {
          const result = call.apply(policy, args);
          check?.(result, args);
          return result;
        } catch (error) {
          report(where, error);
          return fallback(...args);
        }
      })
    );
  };
  const hooks = {
    whyMoved: calm('whyMoved', policy.whyMoved, () => ({ reason: 'policy' as const })),
    begun: calm('begun', policy.begun, nothing),
    ended: calm('ended', policy.ended, nothing),
    knowsSession: calm('knowsSession', policy.knowsSession, () => false),
    heldRank: calm('heldRank', policy.heldRank, () => 0),
    nextHeld: calm('nextHeld', policy.nextHeld, firstOf),
    sessionEnded: calm('sessionEnded', policy.sessionEnded, () => false),
    homeOf: calm('homeOf', policy.homeOf, () => null),
    hashes: calm('hashes', policy.hashes, () => false),
    flushed: calm('flushed', policy.flushed, nothing),
    compared: calm('compared', policy.compared, (_x, workers) => workers),
    costs: calm('costs', policy.costs, nothing),
    explain: calm('explain', policy.explain, () => []),
    indexSize: calm('indexSize', policy.indexSize, () => ({ blocks: 0, bytes: 0 })),
    describe: calm('describe', policy.describe, () => ({})),
    close: calm('close', policy.close, nothing),
  };
  return {
    name,
    policy: {
      needs: policy.needs,
      ...(policy.learnsFromAnswers === true && { learnsFromAnswers: true as const }),
      choose(x, workers) {
        try {
          const choice = policy.choose(x, workers);
          checks.choose?.(choice, [x, workers]);
          return choice;
        } catch (error) {
          report('choose', error);
          throw error;
        }
      },
      // A method that the policy lacks must be missing here too: callers test for it.
      ...(Object.fromEntries(Object.entries(hooks).filter(([, hook]) => hook !== undefined)) as Partial<Policy>),
    },
  };
}
