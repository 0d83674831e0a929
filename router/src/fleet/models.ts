import { readModels } from '../engines/models.ts';
import type { Fleet } from './fleet.ts';
import { REASONS, type Worker } from './worker.ts';

/** Engines are asked for their models at most this often on account of names that nobody knows. */
const LOOK_EVERY_MS = 1_000;

/**
 * Which workers serve which models: by what engines list, and by the label `model_id`. While all list the same, nothing
 * here is asked or paid for: the model of a request is not even looked at.
 */
export class FleetModels {
  /** Workers differ in what they serve. */
  areSeveral = false;
  readonly #fleet: Fleet;
  readonly #options: { readonly timeoutMs: number };
  readonly #onChange: () => void;
  /** Eligible workers by model, as long as neither they nor their models change. */
  readonly #among = new Map<string, readonly Worker[]>();
  #eligible: readonly Worker[] = [];
  #look: Promise<void> | null = null;
  #lookedMs = -Infinity;

  /** @param onChange what workers serve has changed */
  constructor(fleet: Fleet, options: { readonly timeoutMs: number }, onChange: () => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#onChange = onChange;
    fleet.onEvent((event, worker) => {
      if (event === 'added') worker.models = declaredBy(worker);
      if (event === 'added' || event === 'removed') this.#settle();
    });
  }

  /** Asks these workers what they serve. Who does not say is taken to serve what it served before. */
  async read(workers: readonly Worker[]): Promise<void> {
    const engines = Map.groupBy(workers, ({ engineUrl }) => engineUrl);
    await Promise.all(
      Array.from(engines.values(), async (ranks) => {
        const listed = await readModels(ranks[0]!.asker(this.#options.timeoutMs));
        if (listed !== null) for (const rank of ranks) rank.models = new Map([...(declaredBy(rank) ?? []), ...listed]);
      }),
    );
    this.#settle();
  }

  /** Asks every worker that can be asked, but not more than once a second: adapters come and go behind the router's back. */
  lookAgain(): Promise<void> {
    if (this.#look !== null) return this.#look;
    if (performance.now() - this.#lookedMs < LOOK_EVERY_MS) return Promise.resolve();
    const reachable = this.#fleet.workers.filter(({ reasons }) => (reasons & REASONS.unhealthy) === 0);
    this.#look = this.read(reachable).finally(() => {
      this.#look = null;
      this.#lookedMs = performance.now();
    });
    return this.#look;
  }

  /** No worker serves it, and none is left of which that is not known. */
  isUnknown(model: string): boolean {
    return this.#fleet.workers.every(({ models }) => models !== null && !serves(models, model));
  }

  /** Eligible workers that serve it; where nobody is known to, those of which nothing is known. */
  eligibleFor(model: string): readonly Worker[] {
    const { eligible } = this.#fleet;
    if (this.#eligible !== eligible) {
      this.#eligible = eligible;
      this.#among.clear();
    }
    let among = this.#among.get(model);
    if (among === undefined) {
      const isServed = this.isServed(model);
      among = eligible.filter(({ models }) => (isServed ? models !== null && serves(models, model) : models === null));
      // Names come from clients: those that nobody knows must not be remembered.
      if (isServed) this.#among.set(model, among);
    }
    return among;
  }

  /** Whether any worker is known to serve it. */
  isServed(model: string): boolean {
    return this.#fleet.workers.some(({ models }) => models !== null && serves(models, model));
  }

  /** All models that workers serve. */
  names(): string[] {
    return [...new Set(this.#fleet.workers.flatMap(({ models }) => [...(models?.keys() ?? [])]))];
  }

  /** The answer to `GET /v1/models`: what all of them serve, each in the words of the first that does. */
  list(): string {
    const all = new Map<string, string>();
    for (const { models } of this.#fleet.workers) {
      for (const [name, json] of models ?? []) if (!all.has(name)) all.set(name, json);
    }
    return `{"object":"list","data":[${[...all.values()].join(',')}]}`;
  }

  #settle(): void {
    const { workers } = this.#fleet;
    const kinds = new Set(workers.map(({ models }) => JSON.stringify([...(models?.keys() ?? [])].toSorted())));
    // Who says nothing is taken to serve what the others do, unless somebody was told apart from it by hand.
    if (workers.every((worker) => declaredBy(worker) === null)) kinds.delete('[]');
    this.areSeveral = kinds.size > 1;
    this.#among.clear();
    this.#onChange();
  }
}

function declaredBy({ labels }: Worker): ReadonlyMap<string, string> | null {
  const id = labels['model_id'];
  if (id === undefined || id === '' || id === 'unknown') return null;
  return new Map([[id, JSON.stringify({ id, object: 'model', created: 0, owned_by: 'turnout' })]]);
}

/** SGLang (0.5.23) takes `model:adapter` for an adapter of that model. */
function serves(models: ReadonlyMap<string, string>, name: string): boolean {
  if (models.has(name)) return true;
  const colon = name.indexOf(':');
  return colon > 0 && models.has(name.slice(0, colon)) && models.has(name.slice(colon + 1));
}
