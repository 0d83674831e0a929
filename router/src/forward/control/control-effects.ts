import type { PolicyTable } from '../../choose/policy-table.ts';
import { controlOf, emptiesCache, mayNameMemory, memoryTagsIn } from '../../engines/controls.ts';
import type { Exchange } from '../../exchange.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import type { Health } from '../../fleet/health.ts';
import type { Pauses } from '../../fleet/pauses.ts';
import { REASONS, type Worker } from '../../fleet/worker.ts';
import type { VersionLabels } from '../../weights/version-labels.ts';

export interface EffectsParts {
  readonly table: PolicyTable;
  readonly health: Health;
  readonly labels: VersionLabels;
  readonly models: FleetModels;
  readonly pauses: Pauses;
}

/** No list of the parts of the memory is longer. */
const MAX_TAGS_BYTES = 65_536;

/** To be called when an engine's part of a control request has ended. `status`: null or 0 if no response came. */
export type EndControl = (status: number | null, isDone: boolean) => void;

/** What control requests change in the router's knowledge of engines: versions, pauses, caches, models. */
export class ControlEffects {
  readonly #parts: EffectsParts;

  constructor(parts: EffectsParts) {
    this.#parts = parts;
  }

  /** A control request is about to be sent to the worker's engine. */
  begin({ path, head, body }: Exchange, worker: Worker): EndControl {
    const control = controlOf(path);
    const label = control?.changesVersion === true ? this.#parts.labels.of(worker) : null;
    label?.updateBegan();
    const isReadable = control !== null && mayNameMemory(control) && body.isWhole && body.bytes <= MAX_TAGS_BYTES;
    const tags = isReadable ? memoryTagsIn(head.target, body.join().toString()) : null;
    const end = this.#parts.pauses.begin(worker.engineUrl, path, tags);
    return (status, isDone) => {
      label?.updateEnded(mayHaveChanged(status));
      end(isDone);
    };
  }

  /** The request changed the weights of an engine that a policy chose: when the update began is not known. */
  updated(path: string, worker: Worker): void {
    if (controlOf(path)?.changesVersion !== true) return;
    const label = this.#parts.labels.of(worker);
    label.updateBegan();
    label.updateEnded(true);
  }

  /**
   * The engine of these workers has done it. Called as its response comes: it may fill its cache again while others still work on the request.
   */
  emptied({ path, head }: Exchange, workers: readonly Worker[]): void {
    const control = controlOf(path);
    if (control === null || !emptiesCache(control, head.target)) return;
    for (const worker of workers) this.#parts.table.flushed(worker, 'engine');
  }

  /**
   * All engines have responded, and those of these workers have done it: what is known of their weights and models may be outdated.
   *
   * @param isAnswered the client has the response. It may rely on it in its next request, which waits for lists of models that are not known
   */
  async done({ path }: Exchange, workers: readonly Worker[], isAnswered: boolean): Promise<void> {
    const control = controlOf(path);
    if (control === null || workers.length === 0) return;
    const { models } = this.#parts;
    if (control.changesModels === true && isAnswered) for (const worker of workers) models.forget(worker);
    await Promise.all([
      control.changesVersion === true ? this.#readVersions(workers) : null,
      control.changesModels === true ? models.read(workers) : null,
    ]);
  }

  /** Also checks the workers that were held back for an old version. */
  async #readVersions(workers: readonly Worker[]): Promise<void> {
    const { labels, health } = this.#parts;
    await labels.read(workers);
    for (const worker of workers) if ((worker.reasons & REASONS.version) !== 0) health.suspect(worker);
  }
}

/** Statuses that say that an engine did not take a call. */
const REFUSALS: ReadonlySet<number> = new Set([401, 403, 404, 405, 422, 501]);

/**
 * Whether an update of weights with this status may have changed them. SGLang 0.5.23 answers 400 to one that loaded the weights and could
 * not flush its cache.
 */
const mayHaveChanged = (status: number | null): boolean => !REFUSALS.has(status ?? 0);
