// What every router knows of its engines: which are alive, and how many requests are in flight at each.
import { KvCache } from '../kv-cache.ts';
import type { PolicyHost, SimPolicy } from '../policy.ts';
import type { Request, Segment } from '../workload.ts';

/** A policy that counts requests in flight. The first of equal engines is the one with the lowest index. */
export abstract class RouterPolicy implements SimPolicy {
  protected readonly host: PolicyHost;
  protected readonly count: number;
  protected readonly inflight: number[];
  protected readonly isAlive: boolean[];
  protected readonly isPaused: boolean[];
  /** Engines that are alive; all of them when none is. */
  protected alive: readonly number[];

  constructor(host: PolicyHost) {
    this.host = host;
    this.count = host.engineCount;
    this.inflight = Array.from({ length: this.count }, () => 0);
    this.isAlive = this.inflight.map(() => true);
    this.isPaused = this.inflight.map(() => false);
    this.alive = [...this.inflight.keys()];
  }

  abstract route(request: Request): number | null;

  sent(_request: Request, engine: number): void {
    this.inflight[engine]! += 1;
  }

  finished(_request: Request, engine: number): void {
    this.inflight[engine]! -= 1;
  }

  closed(_sessionId: string, _groupId: string): void {}

  down(engine: number, _lost: readonly Request[]): void {
    this.isAlive[engine] = false;
    this.inflight[engine] = 0;
    this.#refresh();
  }

  upped(engine: number): void {
    this.isAlive[engine] = true;
    this.#refresh();
  }

  paused(engine: number): void {
    this.isPaused[engine] = true;
  }

  swapped(engine: number): void {
    this.isPaused[engine] = false;
  }

  pump(): void {}

  /** The living engine with the lowest score. */
  protected lowest(score: (engine: number) => number): number {
    let best = this.alive[0]!;
    let lowest = score(best);
    for (const engine of this.alive.slice(1)) {
      const value = score(engine);
      if (value >= lowest) continue;
      lowest = value;
      best = engine;
    }
    return best;
  }

  protected pickAny(engines: readonly number[]): number {
    return engines[Math.floor(this.host.random() * engines.length)]!;
  }

  #refresh(): void {
    const all = [...this.inflight.keys()];
    const alive = all.filter((engine) => this.isAlive[engine]);
    this.alive = alive.length > 0 ? alive : all;
  }
}

/** Estimates each engine's prefix cache from the prompts that it sent there. */
export abstract class IndexedPolicy extends RouterPolicy {
  protected readonly index: KvCache[] = this.inflight.map(() => new KvCache());

  override down(engine: number, lost: readonly Request[]): void {
    super.down(engine, lost);
    this.forget(engine);
  }

  /** Prompt tokens that the engine is believed to hold. */
  protected matched(request: Request, engine: number): number {
    return this.index[engine]!.match(request.segments);
  }

  /** Records what the engine now holds; beyond its memory the least recently used is dropped. */
  protected learn(segments: readonly Segment[], engine: number): void {
    const index = this.index[engine]!;
    index.insert(segments, this.host.now);
    index.evict(index.tokens - this.host.engineOptions.kvTokens);
  }

  protected forget(engine: number): void {
    this.index[engine] = new KvCache();
  }
}
