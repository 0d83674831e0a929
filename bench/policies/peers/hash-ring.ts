// Consistent hashing by session or by prefix, with and without a bound on the load of an engine.
import { hash32 } from '../../../router/src/kit/hash.ts';
import type { PolicyHost } from '../policy.ts';
import type { Request } from '../workload.ts';
import { RouterPolicy } from './router-view.ts';

interface RingOptions {
  readonly key: (request: Request) => string;
  /** Points on the ring per engine. */
  readonly replicas: number;
  /** An engine may have this many times the mean in flight; Infinity for no limit. */
  readonly loadFactor: number;
}

export class HashRing extends RouterPolicy {
  readonly #options: RingOptions;
  readonly #points: Uint32Array;
  readonly #owners: Uint32Array;

  constructor(host: PolicyHost, options: RingOptions) {
    super(host);
    this.#options = options;
    // Engines have other addresses in every fleet, and so other points.
    const fleet = host.random();
    const ring = [...this.inflight.keys()]
      .flatMap((engine) =>
        Array.from({ length: options.replicas }, (_, i) => ({ engine, point: hash32(`${fleet} ${engine}#${i}`) })),
      )
      .sort((a, b) => a.point - b.point);
    this.#points = Uint32Array.from(ring, ({ point }) => point);
    this.#owners = Uint32Array.from(ring, ({ engine }) => engine);
  }

  route(request: Request): number {
    const { key, loadFactor } = this.#options;
    const total = this.inflight.reduce((sum, count) => sum + count, 0);
    const limit = Math.ceil((loadFactor * (total + 1)) / this.alive.length);
    const size = this.#points.length;
    const start = this.#firstPointFrom(hash32(key(request)));
    for (let i = 0; i < size; i++) {
      const engine = this.#owners[(start + i) % size]!;
      if (this.isAlive[engine] && this.inflight[engine]! + 1 <= limit) return engine;
    }
    return this.alive[0]!;
  }

  #firstPointFrom(hash: number): number {
    let low = 0;
    let high = this.#points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#points[middle]! < hash) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const bySession = (request: Request): string => request.sessionId;
const byFirstTokens = ({ segments }: Request): string => segments[0]!.name;

/** The system prompt is skipped, so that the first user message decides. */
function byFirstMessage({ segments }: Request): string {
  const [first, second] = segments;
  return second !== undefined && first!.name.startsWith('sys') ? second.name : first!.name;
}

export const ringPolicies = {
  /** vllm-router consistent_hash, smg consistent_hashing. */
  chash_session: (host: PolicyHost) => new HashRing(host, { key: bySession, replicas: 160, loadFactor: Infinity }),
  /** KubeAI PrefixHash. */
  chwbl_prefix: (host: PolicyHost) => new HashRing(host, { key: byFirstMessage, replicas: 256, loadFactor: 1.25 }),
  chwbl_session: (host: PolicyHost) => new HashRing(host, { key: bySession, replicas: 256, loadFactor: 1.25 }),
  /** smg prefix_hash: the first 256 tokens, the system prompt among them. */
  prefix_hash: (host: PolicyHost) => new HashRing(host, { key: byFirstTokens, replicas: 160, loadFactor: 1.25 }),
};
