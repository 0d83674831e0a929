import type { Needs, PlacedRequest } from '../placed-request.ts';
import type { Worker } from '../fleet/worker.ts';
import { type FlushWhy, type IndexSize, type Policy, sumOfSizes } from './policy.ts';

/** A policy, and the name that the configuration gives for it. */
export interface NamedPolicy {
  readonly name: string;
  readonly policy: Policy;
}

/** The higher, the more of a request must be known before the policy can choose. */
export const strength: Readonly<Record<Needs, number>> = { nothing: 0, headers: 1, key: 2, prompt: 3, ids: 4 };

/** Which policy chooses: one for all models, and others for the models that have their own. Can change at run time. */
export class PolicyTable {
  /** The most that any of the policies needs. */
  needs: Needs = 'nothing';
  /** Whether the model of a request decides which policy chooses. */
  needsModel = false;
  /** A policy goes by the token counts of earlier responses. */
  learnsFromAnswers = false;
  #usual: NamedPolicy;
  readonly #byModel = new Map<string, NamedPolicy>();

  constructor(usual: NamedPolicy) {
    this.#usual = usual;
    this.#settle();
  }

  /** `model` '': for all models without their own. The old policy is still notified when its requests end. */
  set(model: string, named: NamedPolicy): void {
    const old = model === '' ? this.#usual : this.#byModel.get(model);
    if (model === '') this.#usual = named;
    else this.#byModel.set(model, named);
    this.#settle();
    old?.policy.close?.();
  }

  /** @returns false if the model had no policy of its own */
  unset(model: string): boolean {
    const old = this.#byModel.get(model);
    if (old === undefined) return false;
    this.#byModel.delete(model);
    this.#settle();
    old.policy.close?.();
    return true;
  }

  for(x: PlacedRequest): Policy {
    if (!this.needsModel) return this.#usual.policy;
    return (this.#byModel.get(x.model) ?? this.#usual).policy;
  }

  /** The name of the policy that `for` returns. */
  nameFor(x: PlacedRequest): string {
    return (this.#byModel.get(x.model) ?? this.#usual).name;
  }

  /** Whether the default policy can choose for this session without the body. */
  knowsSession(x: PlacedRequest): boolean {
    return this.#usual.policy.knowsSession?.(x) ?? false;
  }

  /** @returns whether any policy knew the session */
  sessionEnded(session: string): boolean {
    let isKnown = false;
    for (const [, { policy }] of this.entries()) isKnown = (policy.sessionEnded?.(session) ?? false) || isKnown;
    return isKnown;
  }

  /** Where the requests of a session go, by each policy that knows; null if no policy keeps sessions. */
  homesOf(session: string): readonly Worker[] | null {
    let keepsSessions = false;
    const homes = new Set<Worker>();
    for (const [, { policy }] of this.entries()) {
      if (policy.homeOf === undefined) continue;
      keepsSessions = true;
      const home = policy.homeOf(session);
      if (home !== null) homes.add(home);
    }
    return keepsSessions ? [...homes] : null;
  }

  /** What was known of the worker's KV cache is void. */
  flushed(worker: Worker, why: FlushWhy): void {
    for (const [, { policy }] of this.entries()) policy.flushed?.(worker, why);
  }

  /** By the name of the policy: those of several models together. */
  indexSizes(): ReadonlyMap<string, IndexSize> {
    const sizes = new Map<string, IndexSize>();
    for (const [, { name, policy }] of this.entries()) {
      const size = policy.indexSize?.();
      if (size === undefined) continue;
      const before = sizes.get(name);
      sizes.set(name, before === undefined ? size : sumOfSizes([before, size]));
    }
    return sizes;
  }

  close(): void {
    for (const [, { policy }] of this.entries()) policy.close?.();
  }

  /** By model; '' first, for the default policy. */
  *entries(): Iterable<[string, NamedPolicy]> {
    yield ['', this.#usual];
    yield* this.#byModel;
  }

  #settle(): void {
    this.needsModel = this.#byModel.size > 0;
    this.needs = 'nothing';
    this.learnsFromAnswers = false;
    for (const [, { policy }] of this.entries()) {
      this.learnsFromAnswers ||= policy.learnsFromAnswers === true;
      if (strength[policy.needs] > strength[this.needs]) this.needs = policy.needs;
    }
  }
}
