// SGLang and smg cache_aware: shortest queue when load is uneven, else longest prefix match, else the smallest tree.
import type { PolicyHost } from '../policy.ts';
import type { Request } from '../workload.ts';
import { IndexedPolicy } from './router-view.ts';

interface CacheAwareOptions {
  /** Share of the prompt that has to match. */
  readonly matchShare: number;
  /** Load is uneven when the extremes are further apart than this many requests ... */
  readonly imbalance: number;
  /** ... and than this factor. */
  readonly imbalanceFactor: number;
}

/** Its trees only grow: it does not know what engines evict. */
export class CacheAware extends IndexedPolicy {
  readonly #options: CacheAwareOptions;

  constructor(host: PolicyHost, options: CacheAwareOptions) {
    super(host);
    this.#options = options;
  }

  route(request: Request): number {
    const engine = this.#choose(request);
    this.index[engine]!.insert(request.segments, this.host.now);
    return engine;
  }

  #choose(request: Request): number {
    const { matchShare, imbalance, imbalanceFactor } = this.#options;
    const loads = this.alive.map((engine) => this.inflight[engine]!);
    const low = Math.min(...loads);
    const high = Math.max(...loads);
    if (high - low > imbalance && high > imbalanceFactor * low) return this.lowest((engine) => this.inflight[engine]!);
    let longest = -1;
    let best = 0;
    for (const engine of this.alive) {
      const match = this.matched(request, engine);
      if (match < longest) continue;
      longest = match;
      best = engine;
    }
    if (longest > matchShare * request.promptTokens) return best;
    return this.lowest((engine) => this.index[engine]!.tokens);
  }
}

export const cacheAwarePolicies = {
  cache_aware: (host: PolicyHost) => new CacheAware(host, { matchShare: 0.5, imbalance: 32, imbalanceFactor: 1.0001 }),
  /** The same in vllm-router, with its defaults. */
  cache_aware_vllm: (host: PolicyHost) =>
    new CacheAware(host, { matchShare: 0.3, imbalance: 64, imbalanceFactor: 1.5 }),
};
