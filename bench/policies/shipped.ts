// The router's own policies, unchanged, with the simulation's interface.
import { Chooser } from '../../router/src/choose/choose.ts';
import { policies } from '../../router/src/choose/built-in-policies.ts';
import type { Hold } from '../../router/src/choose/policy.ts';
import { RankedRequests } from '../../router/src/choose/ranked-requests.ts';
import { PolicyTable } from '../../router/src/choose/policy-table.ts';
import { type StateStore, memoryStore } from '../../router/src/choose/state.ts';
import { loadConfig } from '../../router/src/config/load.ts';
import type { Config } from '../../router/src/config/options.ts';
import type { PolicyName } from '../../router/src/config/options/policy-names.ts';
import { Fleet } from '../../router/src/fleet/fleet.ts';
import type { Worker } from '../../router/src/fleet/worker.ts';
import { RouterError } from '../../router/src/kit/errors.ts';
import { PlacedRequest } from '../../router/src/placed-request.ts';
import { blockHashes } from './block-hashes.ts';
import type { Job } from './job.ts';
import type { PolicyHost, SimPolicy, SimPolicyFactory } from './policy.ts';
import { Simulation } from './simulation.ts';
import type { Request } from './workload.ts';

/** A unit of the router's blocks is a byte; the simulation's prompts are text of four bytes per token. */
const BYTES_PER_TOKEN = 4;

export interface ShippedOptions {
  /** Clients send session end signals. */
  readonly hasEndSignals: boolean;
  /** An earlier batch of the same kind ran, and the router was restarted since then. */
  readonly hasHistory: boolean;
  readonly config?: Partial<Config>;
  /** The engines' URLs, which rings and ties hash. */
  readonly workerUrls?: readonly string[];
}

interface HeldRequest {
  readonly request: Request;
  /** When it is sent although there is no room, in seconds. */
  readonly until: number;
  /** In the order of ranks. */
  readonly slot: number;
}

class ShippedPolicy implements SimPolicy {
  readonly #host: PolicyHost;
  readonly #fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  readonly #table: PolicyTable;
  readonly #chooser: Chooser;
  readonly #workers: readonly Worker[];
  readonly #hasEndSignals: boolean;
  readonly #batch: string;
  readonly #requests = new Map<number, PlacedRequest>();
  /** In the order in which they were first held. */
  readonly #held = new Map<PlacedRequest, HeldRequest>();
  readonly #ranked = new RankedRequests();

  /** @param batch prefix of session ids, so that batches do not share sessions */
  constructor(host: PolicyHost, name: PolicyName, options: ShippedOptions, store: StateStore, batch: string) {
    this.#host = host;
    this.#batch = batch;
    this.#hasEndSignals = options.hasEndSignals;
    const urls = options.workerUrls ?? host.engines.map((_, index) => `http://engine-${index}:1`);
    this.#workers = urls.map((url) => this.#fleet.add(url) as Worker);
    for (const worker of this.#workers) worker.kvTokens = host.engineOptions.kvTokens;
    const policy = policies[name]({
      fleet: this.#fleet,
      random: host.random,
      options: { ...loadConfig({}, {}, undefined), ...options.config },
      nowMs: () => host.now * 1000,
      state: (map) => store.open(map),
      retryHeld: () => host.pumpAt(host.now),
      trace: null,
      warn: () => {},
    });
    this.#table = new PolicyTable({ name, policy });
    this.#chooser = new Chooser(this.#fleet, this.#table);
  }

  route(request: Request): number | null {
    let x = this.#requests.get(request.id);
    if (x === undefined) this.#requests.set(request.id, (x = this.#requestOf(request)));
    const choice = this.#choose(x);
    if (typeof choice === 'number') return choice;
    const until = this.#host.now + choice.maxMs / 1000;
    this.#hold(x, request, until);
    this.#host.pumpAt(until);
    return null;
  }

  sent(): void {}

  moved(request: Request, engine: number): void {
    const x = this.#requests.get(request.id)!;
    this.#chooser.released(x);
    x.target = this.#workers[engine]!;
    this.#chooser.place(x);
  }

  finished(request: Request, _engine: number): void {
    const x = this.#requests.get(request.id)!;
    this.#requests.delete(request.id);
    const { promptTokens, outputTokens } = request;
    x.usage = { promptTokens, cachedTokens: null, outputTokens };
    x.outcome = 'complete';
    x.status = 200;
    x.firstTokenMs = (request as Job).firstTokenAt * 1000;
    x.endMs = this.#host.now * 1000;
    this.#chooser.released(x);
  }

  closed(sessionId: string): void {
    if (this.#hasEndSignals) this.#table.sessionEnded(this.#batch + sessionId);
  }

  down(engine: number, lost: readonly Request[]): void {
    const worker = this.#workers[engine]!;
    this.#fleet.setReason(worker, 'unhealthy', true);
    for (const request of lost) {
      const x = this.#requests.get(request.id)!;
      this.#chooser.released(x);
      x.tried = [...x.tried, worker];
    }
  }

  upped(engine: number): void {
    this.#fleet.setReason(this.#workers[engine]!, 'unhealthy', false);
  }

  paused(): void {}

  swapped(engine: number): void {
    this.#table.flushed(this.#workers[engine]!, 'engine');
  }

  /** As the router's hold queue. */
  pump(): void {
    for (const [x, { request, until }] of this.#held) {
      if (until > this.#host.now) break;
      x.holdEnded(x.placer!, 0, true);
      this.#send(x, request);
    }
    const [, { policy }] = this.#table.entries()[Symbol.iterator]().next().value!;
    while (this.#held.size > 0) {
      const x = policy.nextHeld?.(this.#ranked, this.#fleet.eligible) ?? null;
      if (x === null) return;
      if (!this.#send(x, this.#held.get(x)!.request)) return;
    }
  }

  close(): void {
    for (const [, { policy }] of this.#table.entries()) policy.close?.();
  }

  /** @returns whether the held request could be sent */
  #send(x: PlacedRequest, request: Request): boolean {
    const engine = this.#choose(x);
    const { until, slot } = this.#held.get(x)!;
    this.#ranked.delete(slot);
    if (typeof engine !== 'number') {
      this.#hold(x, request, until);
      return false;
    }
    this.#held.delete(x);
    this.#host.send(request, engine);
    return true;
  }

  #hold(x: PlacedRequest, request: Request, until: number): void {
    const slot = this.#ranked.add(x, x.placer!.heldRank?.(x) ?? 0);
    this.#held.set(x, { request, until, slot });
  }

  #choose(x: PlacedRequest): number | Hold {
    const choice = this.#chooser.place(x);
    if (choice === null || choice instanceof RouterError) throw new Error('no engine is left for a request');
    return 'hold' in choice ? choice : this.#workers.indexOf(choice.legs[0]!.worker);
  }

  #requestOf(request: Request): PlacedRequest {
    const x = new PlacedRequest();
    x.bodyBytes = request.promptTokens * BYTES_PER_TOKEN;
    x.key = { kind: 'session', value: this.#batch + request.sessionId, source: 'header:x-session-id' };
    // As in the router: a policy that can choose without the prompt does not get it.
    if (this.#table.knowsSession(x)) return x;
    x.prompt = {
      field: 'prompt',
      blocks: blockHashes(request),
      bytes: x.bodyBytes,
      tokens: request.promptTokens,
      hash: request.segments.at(-1)!.hash,
    };
    return x;
  }
}

/** A shipped policy; with history, after an earlier batch on a fleet of the same kind. */
export function shippedPolicy(name: PolicyName, options: ShippedOptions): SimPolicyFactory {
  return (host) => {
    const store = memoryStore();
    if (options.hasHistory) {
      let earlier: ShippedPolicy | null = null;
      new Simulation({
        trace: host.earlierBatch(),
        policy: (inner) => (earlier = new ShippedPolicy(inner, name, options, store, 'earlier/')),
        engineCount: host.engineCount,
        engine: host.engineOptions,
        seed: 0,
        earlierBatch: host.earlierBatch,
      }).run();
      earlier!.close();
    }
    return new ShippedPolicy(host, name, options, store, '');
  };
}

/** Clients with keys and end signals; clients without; `rollout` in all its states. */
export const shipped: Readonly<Record<string, SimPolicyFactory>> = {
  rollout: shippedPolicy('rollout', { hasEndSignals: true, hasHistory: true }),
  rollout_first: shippedPolicy('rollout', { hasEndSignals: true, hasHistory: false }),
  rollout_unsignalled: shippedPolicy('rollout', { hasEndSignals: false, hasHistory: true }),
  rollout_placement: shippedPolicy('rollout', {
    hasEndSignals: true,
    hasHistory: true,
    config: { residencyMaxWaitSecs: 0 },
  }),
  rollout_patient: shippedPolicy('rollout', {
    hasEndSignals: true,
    hasHistory: true,
    config: { residencyMaxWaitSecs: 1800 },
  }),
};
