import { hash32 } from '../../../router/src/kit/hash.ts';
import type { Request } from '../workload.ts';
import { RouterPolicy } from './router-view.ts';

/** vllm-router's sticky_least_loaded, with session end signals: a session stays where it was put. */
export class StickyLeastLoaded extends RouterPolicy {
  readonly #homes = new Map<string, number>();
  readonly #sessions: number[] = this.inflight.map(() => 0);

  route({ sessionId }: Request): number {
    const home = this.#homes.get(sessionId);
    if (home !== undefined) {
      if (this.isAlive[home]) return home;
      this.#sessions[home]! -= 1;
    }
    const fewest = Math.min(...this.alive.map((engine) => this.#sessions[engine]!));
    const engine = this.lowest((i) => (this.#sessions[i] === fewest ? -hash32(`${sessionId} ${i}`) : 1));
    this.#homes.set(sessionId, engine);
    this.#sessions[engine]! += 1;
    return engine;
  }

  override closed(sessionId: string): void {
    const home = this.#homes.get(sessionId);
    if (home === undefined) return;
    this.#homes.delete(sessionId);
    this.#sessions[home]! -= 1;
  }
}
