import type { Exchange, Why } from '../exchange.ts';
import type { Observer } from './observer.ts';

/** What one policy decided, and how well it knew the prompt caches. */
export class PolicyCounts {
  /** Placements by why they are where they are. */
  readonly decisions: Record<Why, number> = { new: 0, home: 0, moved: 0, retry: 0, target: 0, policy: 0 };
  /**
   * Of responses whose engine reports cached tokens and whose policy predicted them: tokens of the prompts, those that the policy took for cached,
   * those that were, and the sum of the differences of single requests.
   */
  promptTokens = 0;
  predictedTokens = 0;
  reportedTokens = 0;
  missedTokens = 0;
}

/** Counts by policy. */
export class PolicyMeters implements Observer {
  readonly byPolicy = new Map<string, PolicyCounts>();
  readonly #policyFor: (x: Exchange) => string;

  constructor(policyFor: (x: Exchange) => string) {
    this.#policyFor = policyFor;
  }

  /** The exchange has a placement. */
  placed(x: Exchange): void {
    this.#of(x).decisions[x.why]++;
  }

  finished(x: Exchange): void {
    const { usage, predictedTokens } = x;
    if (usage === null || usage.cachedTokens < 0 || predictedTokens < 0) return;
    // The engine that reports is not the one that read the prompt.
    if (x.placement === null || x.placement.legs.length > 1) return;
    const counts = this.#of(x);
    counts.promptTokens += Math.max(0, usage.promptTokens);
    counts.predictedTokens += predictedTokens;
    counts.reportedTokens += usage.cachedTokens;
    counts.missedTokens += Math.abs(predictedTokens - usage.cachedTokens);
  }

  #of(x: Exchange): PolicyCounts {
    const name = this.#policyFor(x);
    let counts = this.byPolicy.get(name);
    if (counts === undefined) this.byPolicy.set(name, (counts = new PolicyCounts()));
    return counts;
  }
}
