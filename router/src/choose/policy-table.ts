import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Needs, Policy } from './policy.ts';

/** A policy and the name it was asked for by. */
export interface NamedPolicy {
  readonly name: string;
  readonly policy: Policy;
}

/** The more of them, the more a policy asks for. */
export const strength: Readonly<Record<Needs, number>> = { nothing: 0, headers: 1, key: 2, prompt: 3 };

/** Which policy decides: one for all, others for the models that have their own. Can be changed while running. */
export class PolicyTable {
  /** The most that any of them needs. */
  needs: Needs = 'nothing';
  /** Whether the model that a request names decides who chooses. */
  needsModel = false;
  #usual: NamedPolicy;
  readonly #byModel = new Map<string, NamedPolicy>();

  constructor(usual: NamedPolicy) {
    this.#usual = usual;
    this.#settle();
  }

  /** `model` '': for all models that have none of their own. What was placed by the old policy is still reported to it. */
  set(model: string, named: NamedPolicy): void {
    const old = model === '' ? this.#usual : this.#byModel.get(model);
    if (model === '') this.#usual = named;
    else this.#byModel.set(model, named);
    this.#settle();
    old?.policy.close?.();
  }

  /** The model is treated as all others again. @returns false: it was already. */
  unset(model: string): boolean {
    const old = this.#byModel.get(model);
    if (old === undefined) return false;
    this.#byModel.delete(model);
    this.#settle();
    old.policy.close?.();
    return true;
  }

  for(x: Exchange): Policy {
    if (!this.needsModel) return this.#usual.policy;
    return (this.#byModel.get(x.model) ?? this.#usual).policy;
  }

  /** The name of the policy that `for` answers. */
  nameFor(x: Exchange): string {
    return (this.#byModel.get(x.model) ?? this.#usual).name;
  }

  /** Whether the policy of all models can choose for this session without what is in the body. */
  knowsSession(x: Exchange): boolean {
    return this.#usual.policy.knowsSession?.(x) ?? false;
  }

  /** @returns whether any policy knew the session. */
  sessionEnded(session: string): boolean {
    let isKnown = false;
    for (const [, { policy }] of this.entries()) isKnown = (policy.sessionEnded?.(session) ?? false) || isKnown;
    return isKnown;
  }

  /** Where the exchanges of a session go, by any policy that knows; null: none of them keeps sessions. */
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

  /** The worker's caches hold nothing any more. */
  flushed(worker: Worker): void {
    for (const [, { policy }] of this.entries()) policy.flushed?.(worker);
  }

  /** No more choices are asked for. */
  close(): void {
    for (const [, { policy }] of this.entries()) policy.close?.();
  }

  /** By model; '' first: the usual one. */
  *entries(): Iterable<[string, NamedPolicy]> {
    yield ['', this.#usual];
    yield* this.#byModel;
  }

  #settle(): void {
    this.needsModel = this.#byModel.size > 0;
    this.needs = 'nothing';
    for (const [, { policy }] of this.entries()) {
      if (strength[policy.needs] > strength[this.needs]) this.needs = policy.needs;
    }
  }
}
