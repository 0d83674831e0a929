import type { Fleet } from './fleet.ts';
import { REASONS, type Worker } from './worker.ts';
import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';
import type { Asker } from '../engines/ask.ts';

/** The least time between two lookups for unknown model names. */
const LOOK_EVERY_MS = 1_000;

/**
 * Which workers serve which models, by the engines' lists and the label `model_id`. While all workers list the same
 * models, this costs nothing: the model of a request is not even read.
 */
export class FleetModels {
  /** Workers differ in the models they serve. */
  areSeveral = false;
  /** Maps the name of a model that a client uses to the name that engines serve (`--fireworks-names`); null: names are not mapped. */
  alias: ((name: string) => string) | null = null;
  readonly #fleet: Fleet;
  readonly #options: { readonly timeoutMs: number };
  readonly #onChange: () => void;
  /** Eligible workers by model, until either changes. */
  readonly #among = new Map<string, readonly Worker[]>();
  #eligible: readonly Worker[] = [];
  #look: Promise<void> | null = null;
  #lookedMs = -Infinity;

  /** @param onChange called when the served models have changed */
  constructor(fleet: Fleet, options: { readonly timeoutMs: number }, onChange: () => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#onChange = onChange;
    fleet.onEvent((event, worker) => {
      if (event === 'added') worker.models = declaredBy(worker);
      if (event === 'added' || event === 'removed') this.#settle();
    });
  }

  /** Asks these workers for their models. A worker that does not answer keeps its last list. */
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

  /** Asks every reachable worker, at most once a second: engines load adapters without a request through the router. */
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

  /** No worker serves the model, and the models of all workers are known. */
  isUnknown(model: string): boolean {
    return this.#fleet.workers.every(({ models }) => models !== null && !serves(models, model));
  }

  /** Eligible workers that serve the model; if no worker is known to serve it, those whose models are not known. */
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
      // Unknown names come from clients and must not fill the memory.
      if (isServed) this.#among.set(model, among);
    }
    return among;
  }

  isServed(model: string): boolean {
    return this.#fleet.workers.some(({ models }) => models !== null && serves(models, model));
  }

  names(): string[] {
    return [...new Set(this.#fleet.workers.flatMap(({ models }) => [...(models?.keys() ?? [])]))];
  }

  /** The response to `GET /v1/models`: each model in the JSON of the first worker that serves it. */
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
    // A worker that lists nothing counts as serving the same as the others, unless a label says otherwise.
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

/** SGLang 0.5.23 accepts `model:adapter` for an adapter of a model. */
function serves(models: ReadonlyMap<string, string>, name: string): boolean {
  if (models.has(name)) return true;
  const colon = name.indexOf(':');
  return colon > 0 && models.has(name.slice(0, colon)) && models.has(name.slice(colon + 1));
}

const listFinder = new MemberFinder(['data']);
const modelFinder = new MemberFinder(['id']);
const span = new Int32Array(2);

/** What an engine lists under /v1/models, adapters too: the JSON of each as it wrote it, by name. null: it lists nothing. */
async function readModels(ask: Asker): Promise<Map<string, string> | null> {
  const reply = await ask('/v1/models').catch(() => null);
  if (reply?.status !== 200) return null;
  const bytes = Buffer.from(reply.text);
  if (listFinder.find(bytes, 0, bytes.length, span) < 0 || span[0]! < 0) return null;
  const models = new Map<string, string>();
  scanItems(bytes, span[0]!, span[1]!, (start, end) => {
    if (modelFinder.find(bytes, start, end, span) < 0 || span[0]! < 0) return;
    const id = readString(bytes, span[0]!, span[1]!);
    if (id !== null && id !== '') models.set(id, bytes.toString('utf8', start, end));
  });
  return models.size === 0 ? null : models;
}
