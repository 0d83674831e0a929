import { setTimeout as delay } from 'node:timers/promises';
import type { Fleet } from './fleet.ts';
import { REASONS, type Worker } from './worker.ts';
import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';
import type { Asker } from '../engines/ask.ts';
import { sglangModelName } from '../engines/sglang.ts';
import { objectIn } from '../kit/json-object.ts';

/** The least time between two lookups for unknown model names. */
const LOOK_EVERY_MS = 1_000;
/** The longest time that requests wait for the first answer of a worker, so that their sessions are not placed without it. */
const FIRST_LOOK_MS = 1_000;
/** The list of an engine that lists nothing. */
const EMPTY = '[]';

export interface FleetModelsOptions {
  readonly timeoutMs: number;
  /** Health checks, which read the lists of new workers. Without them a worker counts as known. */
  readonly isEnabled: boolean;
}

/**
 * Which workers serve which models, by the engines' lists and the label `model_id`. While all workers list the same
 * models, this costs nothing: the model of a request is not even read.
 */
export class FleetModels {
  /** Workers differ in the models they serve, or the models of some are not known yet. */
  areSeveral = false;
  /** Changes with the lists. */
  revision = 0;
  /** Maps the name of a model that a client uses to the name that engines serve (`--fireworks-names`); null: names are not mapped. */
  alias: ((name: string) => string) | null = null;
  readonly #fleet: Fleet;
  readonly #options: FleetModelsOptions;
  readonly #onChange: () => void;
  /** Workers whose engine has listed its models, or has answered that it lists none, since its start. */
  readonly #read = new WeakSet<Worker>();
  /** Workers that were asked, with any outcome. */
  readonly #asked = new WeakSet<Worker>();
  #firstLook: Promise<void> | null = null;
  /** Requests that wait for a worker that serves their model. */
  readonly #waiting = new Set<{ readonly model: string; readonly found: () => void }>();
  /** The list of each worker, as text; null: not known. */
  readonly #lists = new Map<Worker, string | null>();
  /** How many workers have a list. Counted up and down, because a fleet of thousands is added worker by worker. */
  readonly #counts = new Map<string | null, number>();
  /** The `model_id` of workers with one. */
  readonly #declaring = new Map<Worker, string>();
  /** The lists that are known are the same, so a worker that lists nothing serves the same models. */
  #areAlike = true;
  /** Eligible workers by model, until either changes. */
  readonly #among = new Map<string, readonly Worker[]>();
  #eligible: readonly Worker[] = [];
  #look: Promise<void> | null = null;
  #lookedMs = -Infinity;

  /** @param onChange called when the served models have changed */
  constructor(fleet: Fleet, options: FleetModelsOptions, onChange: () => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#onChange = onChange;
    fleet.onEvent((event, worker) => {
      if (event === 'changed') this.#relabel(worker);
      if (event !== 'added' && event !== 'removed') return;
      if (event === 'added') worker.models = declaredBy(worker);
      this.#settle([worker]);
    });
  }

  /** Asks these workers for their models. A worker that does not answer keeps its last list. */
  async read(workers: readonly Worker[]): Promise<void> {
    const engines = Map.groupBy(workers, ({ engineUrl }) => engineUrl);
    await Promise.all(
      Array.from(engines.values(), async (ranks) => {
        const listed = await readModels(ranks[0]!.asker(this.#options.timeoutMs));
        for (const rank of ranks) this.#asked.add(rank);
        if (listed === null) return;
        for (const rank of ranks) {
          rank.models = new Map([...(declaredBy(rank) ?? []), ...listed]);
          this.#read.add(rank);
        }
        this.#settle(ranks);
      }),
    );
  }

  /** The engine was restarted, perhaps with another model, or has loaded an adapter: its list is not known until it is read again. */
  forget(worker: Worker): void {
    worker.models = declaredBy(worker);
    this.#read.delete(worker);
    this.#asked.delete(worker);
    this.#settle([worker]);
  }

  /** The engine has listed its models, or has answered that it lists none. */
  isRead(worker: Worker): boolean {
    return this.#read.has(worker);
  }

  /** Workers that may serve models that are not known yet. */
  get unread(): Worker[] {
    return this.#options.isEnabled ? this.#fleet.workers.filter((worker) => !this.isRead(worker)) : [];
  }

  /** The first answers of eligible workers that were not asked yet; null: all were asked. */
  firstLook(): Promise<void> | null {
    if (!this.#counts.has(null)) return null;
    const fresh = this.#fleet.eligible.filter((worker) => worker.models === null && !this.#asked.has(worker));
    if (fresh.length === 0) return null;
    return (this.#firstLook ??= Promise.race([
      this.read(fresh),
      delay(FIRST_LOOK_MS, undefined, { ref: false }),
    ]).finally(() => {
      for (const worker of fresh) this.#asked.add(worker);
      this.#firstLook = null;
    }));
  }

  /** Asks every reachable worker for its models until one serves this model, or all were asked. */
  lookFor(model: string): Promise<void> {
    return new Promise((resolve) => {
      const waiting = { model, found: resolve };
      this.#waiting.add(waiting);
      void this.lookAgain().then(() => {
        this.#waiting.delete(waiting);
        resolve();
      });
    });
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

  /** Eligible workers that serve the model; if no worker serves it, those that list nothing, as soon as the models of all are known. */
  eligibleFor(model: string): readonly Worker[] {
    const { eligible } = this.#fleet;
    if (this.#eligible !== eligible) {
      this.#eligible = eligible;
      this.#among.clear();
    }
    let among = this.#among.get(model);
    if (among === undefined) {
      const isServed = this.isServed(model);
      const isForUnlisted = isServed ? this.#areAlike : this.unread.length === 0;
      among = eligible.filter(({ models }) => {
        if (models !== null && models.size > 0) return serves(models, model);
        return isForUnlisted && (models !== null || !this.#options.isEnabled);
      });
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

  /** Its labels may have changed. */
  #relabel(worker: Worker): void {
    const before = this.#declaring.get(worker) ?? null;
    if (declaredId(worker) === before) return;
    const isRead = this.#read.has(worker);
    const left = [...(worker.models ?? [])].filter(([name]) => name !== before);
    const declared = declaredBy(worker);
    worker.models = declared === null && !isRead ? null : new Map([...(declared ?? []), ...left]);
    this.#settle([worker]);
    // The engine may list the model, too.
    if (isRead) void this.read([worker]);
  }

  /** The lists of these workers have changed. */
  #settle(changed: readonly Worker[]): void {
    this.revision++;
    for (const worker of changed) this.#count(worker);
    const { workers } = this.#fleet;
    const unknown = this.#counts.get(null) ?? 0;
    // A worker that lists nothing counts as serving the same as the others, unless a label says otherwise.
    const unlisted = this.#declaring.size === 0 && this.#counts.has(EMPTY) ? 1 : 0;
    this.#areAlike = this.#counts.size - (unknown > 0 ? 1 : 0) - unlisted <= 1;
    // The ranks of one engine serve the same.
    const areOfOneEngine = unknown === 0 || workers.every(({ engineUrl }) => engineUrl === workers[0]!.engineUrl);
    this.areSeveral = !this.#areAlike || !areOfOneEngine;
    this.#among.clear();
    for (const { model, found } of this.#waiting) if (this.isServed(model)) found();
    this.#onChange();
  }

  #count(worker: Worker): void {
    const before = this.#lists.get(worker);
    if (before !== undefined) {
      const left = this.#counts.get(before)! - 1;
      if (left === 0) this.#counts.delete(before);
      else this.#counts.set(before, left);
      this.#lists.delete(worker);
      this.#declaring.delete(worker);
    }
    if (!this.#fleet.has(worker)) return;
    const id = declaredId(worker);
    if (id !== null) this.#declaring.set(worker, id);
    const { models } = worker;
    const isKnown = models !== null || !this.#options.isEnabled;
    const list = isKnown ? JSON.stringify([...(models?.keys() ?? [])].toSorted()) : null;
    this.#lists.set(worker, list);
    this.#counts.set(list, (this.#counts.get(list) ?? 0) + 1);
  }
}

function declaredId({ labels }: Worker): string | null {
  const id = labels['model_id'];
  return id === undefined || id === '' || id === 'unknown' ? null : id;
}

function declaredBy(worker: Worker): ReadonlyMap<string, string> | null {
  const id = declaredId(worker);
  if (id === null) return null;
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

/** Responses that say "not now". Each other error says that the engine has no such list. */
const isPassing = (status: number): boolean => (status >= 500 ? status !== 501 : status === 408 || status === 429);

/**
 * What an engine lists under /v1/models, adapters too: the JSON of each as the engine wrote it, by name. Empty: it lists nothing. null: it
 * did not answer, or not yet.
 */
async function readModels(ask: Asker): Promise<Map<string, string> | null> {
  const reply = await ask('/v1/models').catch(() => null);
  if (reply === null || isPassing(reply.status)) return null;
  const models = new Map<string, string>();
  if (reply.status !== 200) return models;
  const bytes = Buffer.from(reply.text);
  if (listFinder.find(bytes, 0, bytes.length, span) < 0 || span[0]! < 0) return models;
  scanItems(bytes, span[0]!, span[1]!, (start, end) => {
    if (modelFinder.find(bytes, start, end, span) < 0 || span[0]! < 0) return;
    const id = readString(bytes, span[0]!, span[1]!);
    if (id !== null && id !== '') models.set(id, bytes.toString('utf8', start, end));
  });
  for (const [name, json] of models) {
    const model = objectIn(json);
    if (model?.['owned_by'] !== 'sglang' || (model['parent'] ?? null) !== null) continue;
    const own = await sglangModelName(ask).catch(() => undefined);
    if (own === undefined) return null;
    if (own === null || models.has(own)) return models;
    const named = JSON.stringify({ ...model, id: own });
    // The order stays.
    return new Map(Array.from(models, (each) => (each[0] === name ? [own, named] : each)));
  }
  return models;
}
