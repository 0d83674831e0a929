import type { Request } from '../workload.ts';
import { IndexedPolicy } from './router-view.ts';

/**
 * The default weights of llm-d 0.10.0: 3 for the prefix match, 2 for free KV memory, 2 for a short queue. It reads the engines'
 * metrics, here without the delay that scraping has.
 */
export class LlmD extends IndexedPolicy {
  route(request: Request): number {
    const { engines, engineOptions, random } = this.host;
    const queues = this.alive.map((engine) => engines[engine]!.waitingCount);
    const shortest = Math.min(...queues);
    const longest = Math.max(...queues);
    const best = this.lowest((engine) => {
      const { usedTokens, waitingCount } = engines[engine]!;
      const prefix = this.matched(request, engine) / request.promptTokens;
      const memory = 1 - usedTokens / engineOptions.kvTokens;
      const queue = longest === shortest ? 1 : (longest - waitingCount) / (longest - shortest);
      return -(3 * prefix + 2 * memory + 2 * queue + 1e-6 * random());
    });
    this.learn(request.segments, best);
    return best;
  }
}
