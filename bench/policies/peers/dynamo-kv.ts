import type { Request } from '../workload.ts';
import { IndexedPolicy } from './router-view.ts';

const blockTokens = 16;
const overlapWeight = 1;

/** NVIDIA Dynamo's KV router with its approximate index: blocks to prefill plus blocks in use, the lowest sum wins. */
export class DynamoKv extends IndexedPolicy {
  readonly #prefill: number[] = this.inflight.map(() => 0);
  readonly #active: number[] = this.inflight.map(() => 0);
  readonly #uncached = new Map<number, number>();

  route(request: Request): number {
    return this.lowest((engine) => {
      const uncached = request.promptTokens - this.matched(request, engine);
      const prefill = this.#prefill[engine]! + uncached;
      return (overlapWeight * prefill + this.#active[engine]! + request.promptTokens) / blockTokens;
    });
  }

  override sent(request: Request, engine: number): void {
    super.sent(request, engine);
    const uncached = request.promptTokens - this.matched(request, engine);
    this.#uncached.set(request.id, uncached);
    this.#active[engine]! += request.promptTokens;
    this.#prefill[engine]! += uncached;
    this.learn(request.segments, engine);
  }

  override finished(request: Request, engine: number): void {
    super.finished(request, engine);
    this.#active[engine]! -= request.promptTokens;
    this.#prefill[engine]! -= this.#uncached.get(request.id)!;
    this.#uncached.delete(request.id);
  }

  override down(engine: number, lost: readonly Request[]): void {
    super.down(engine, lost);
    this.#prefill[engine] = 0;
    this.#active[engine] = 0;
  }
}
