import { STATUS_CODES } from 'node:http';
import type { PolicyTable } from '../../choose/policy-table.ts';
import { type Control, PathTable, controlOf } from '../../engines/controls.ts';
import type { Config } from '../../config/options.ts';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Health } from '../../fleet/health.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import type { EngineLabel } from '../../fleet/engine-label.ts';
import type { Pauses } from '../../fleet/pauses.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import { RouterError } from '../../kit/errors.ts';
import { ownHead } from '../../wire/response-head.ts';
import { COMPLETE, type ResultListener } from '../../wire/result.ts';
import { type AddressBook, addressOf } from './address.ts';
import type { AttemptContext } from '../attempt-context.ts';
import { ControlCall, controlContext } from './control-call.ts';
import { type ControlResult, isDone, report } from './report.ts';

export interface FleetControlParts {
  readonly fleet: Fleet;
  readonly table: PolicyTable;
  readonly health: Health;
  readonly models: FleetModels;
  readonly pauses: Pauses;
  readonly clock: CoarseClock;
  readonly config: Pick<Config, 'broadcastPaths' | 'singleWorkerPaths'>;
  /** Hears how each engine took a control, as the answers come. */
  readonly onResult: (x: Exchange, result: ControlResult) => void;
}

/** What steers engines goes to all of them at once, or to those that its client names. */
export class FleetControl {
  readonly #parts: FleetControlParts;
  readonly #book: AddressBook;
  readonly #context: AttemptContext;
  readonly #broadcast: PathTable<{ readonly path: string }>;
  readonly #single: PathTable<{ readonly path: string }>;
  /** Those that may change the weights of one engine, and its label. */
  readonly #updates = new WeakMap<Exchange, EngineLabel>();
  /** Of controls that go to one worker: to be called when they are over. */
  readonly #ends = new WeakMap<Exchange, (isDone: boolean) => void>();

  constructor(parts: FleetControlParts) {
    this.#parts = parts;
    this.#context = controlContext(parts.clock);
    this.#book = { fleet: parts.fleet, homesOf: (session) => parts.table.homesOf(session) };
    this.#broadcast = new PathTable(parts.config.broadcastPaths.map((path) => ({ path })));
    this.#single = new PathTable(parts.config.singleWorkerPaths.map((path) => ({ path })));
  }

  /** Settles whom a request is for (`target`, `audience`), where that is not for a policy to say. @returns what is wrong */
  address(x: Exchange): RouterError | null {
    if (x.isGeneration) return null;
    const { head, path } = x;
    const control = controlOf(path);
    const isAdded = isIn(this.#broadcast, path);
    const address = addressOf(head, this.#book, control !== null || isAdded);
    if (address instanceof RouterError) return address;
    if (address === null) {
      if (!isAdded && (!goesToAll(control, head.method) || isIn(this.#single, path))) return null;
      x.audience = this.#parts.fleet.workers;
      if (x.audience.length === 0) return new RouterError('no_available_workers', 'The fleet has no workers.');
    } else if ('target' in address) {
      x.target = address.target;
      x.isForEngine = address.isForEngine;
      if (control?.changesVersion === true) {
        const label = this.#parts.health.labels.of(x.target);
        this.#updates.set(x, label);
        label.updateBegan();
      }
    } else x.audience = address.audience;
    x.isSteering = control !== null || isAdded;
    if (x.isSteering && x.target !== null) this.#ends.set(x, this.#parts.pauses.begin(x.target.engineUrl, path));
    return null;
  }

  /** Sends it to everybody in its audience, and answers with all that they said. */
  send(x: Exchange, listener: ResultListener<Exchange>): void {
    // One engine behind several workers, its ranks, gets one call.
    const engines = Map.groupBy(x.audience!, ({ engineUrl }) => engineUrl);
    // Compressed, their answers would be no JSON.
    x.head.drop('accept-encoding');
    x.isForEngine = true;
    x.body.whenComplete(() => void this.#sendAll(x, engines, listener));
  }

  /** One worker did what it was told: as after a control for all. */
  finished(x: Exchange): void {
    this.#updates.get(x)?.updateEnded(mayHaveChanged(x.status));
    if (x.isSteering) this.#ends.get(x)?.(x.outcome === 'complete' && x.status < 300);
    if (x.isGeneration || x.audience !== null || x.outcome !== 'complete' || x.status >= 300 || x.worker === null)
      return;
    const { engineUrl } = x.worker;
    if (!this.#updates.has(x) && controlOf(x.path)?.changesVersion === true) {
      // A policy chose the engine: when the update began there is not known here.
      const label = this.#parts.health.labels.of(x.worker);
      label.updateBegan();
      label.updateEnded(true);
    }
    void this.#done(
      x.path,
      this.#parts.fleet.workers.filter((worker) => worker.engineUrl === engineUrl),
    );
  }

  /** These workers did what they were told: what was known of them may be old. */
  async #done(path: string, workers: readonly Worker[]): Promise<void> {
    const control = controlOf(path);
    if (control === null || workers.length === 0) return;
    const { table, health, models } = this.#parts;
    if (control.flushes === true) for (const worker of workers) table.flushed(worker);
    await Promise.all([
      control.changesVersion === true ? health.weightsChanged(workers) : null,
      control.changesModels === true ? models.read(workers) : null,
    ]);
  }

  async #sendAll(
    x: Exchange,
    engines: ReadonlyMap<string, readonly Worker[]>,
    listener: ResultListener<Exchange>,
  ): Promise<void> {
    const bodies = await changedBodies(x, engines);
    if (x.outcome !== null) return;
    if (bodies instanceof RouterError) return listener.ended(x, { kind: 'refused', error: bodies });
    const isUpdate = controlOf(x.path)?.changesVersion === true;
    const calls = Array.from(engines, ([url, [worker]]) => {
      x.attempts++;
      const label = isUpdate ? this.#parts.health.labels.of(worker!) : null;
      label?.updateBegan();
      return {
        url,
        label,
        startMs: performance.now(),
        end: this.#parts.pauses.begin(url, x.path),
        call: new ControlCall(x, worker!, bodies.get(url) ?? null, this.#context),
      };
    });
    x.underWay = {
      abort() {
        for (const { call } of calls) call.abort();
      },
    };
    const results = await Promise.all(
      calls.map(async ({ url, label, startMs, end, call }) => {
        const answer = await call.answer;
        label?.updateEnded(mayHaveChanged(answer.status));
        const result: ControlResult = { ...answer, worker: url, ms: performance.now() - startMs };
        end(isDone(result));
        if (x.outcome === null) this.#heard(x, result, engines.get(url)!);
        return result;
      }),
    );
    // Before the answer: who reads it is to find the fleet as it is now.
    await this.#done(
      x.path,
      results.filter(isDone).flatMap(({ worker }) => engines.get(worker)!),
    );
    if (x.outcome !== null) return;
    this.#answer(x, results, listener);
    listener.ended(x, COMPLETE);
  }

  #heard(x: Exchange, result: ControlResult, workers: readonly Worker[]): void {
    if (result.status === null) for (const worker of workers) this.#parts.health.suspect(worker);
    this.#parts.onResult(x, result);
  }

  #answer(x: Exchange, results: readonly ControlResult[], listener: ResultListener<Exchange>): void {
    const { status, json } = report(results);
    const body = Buffer.from(json);
    const head = ownHead(status, STATUS_CODES[status]!, 'content-type: application/json\r\n', body.length);
    x.isAnswerOut = true;
    listener.began?.(x, head);
    x.sink.head(head);
    x.sink.body(body, 0, body.length);
    x.sink.end();
  }
}

/** Statuses that say that an engine did not take a call. */
const REFUSALS: ReadonlySet<number> = new Set([401, 403, 404, 405, 422, 501]);

/**
 * Whether an update of weights with this status (0, null: none came) may have changed them. SGLang 0.5.23 answers 400 to one that
 * loaded the weights and could not flush its cache.
 */
const mayHaveChanged = (status: number | null): boolean => !REFUSALS.has(status ?? 0);

const isIn = (table: PathTable<{ readonly path: string }>, path: string): boolean => {
  const found = table.find(path);
  return found !== null && found !== 'endless';
};

function goesToAll(control: Control | null, method: string): boolean {
  if (control === null || control.isForOne === true) return false;
  // SGLang takes many of its controls by GET too (0.5.23: /flush_cache, /start_profile).
  return method !== 'HEAD' && method !== 'OPTIONS' && !(method === 'GET' && control.isReadByGet === true);
}

/** What plugins make of the body for each engine; none where no plugin looks at it. */
async function changedBodies(
  x: Exchange,
  engines: ReadonlyMap<string, readonly Worker[]>,
): Promise<Map<string, Buffer> | RouterError> {
  const bodies = new Map<string, Buffer>();
  for (const [url, [worker]] of engines) {
    const changed = await new Promise<Buffer | RouterError | null>((resolve) => {
      x.plugins.requestBody(x, worker!, { isOver: () => x.outcome !== null, done: resolve, failed: resolve });
    });
    if (changed instanceof RouterError) return changed;
    if (changed === null) return bodies;
    bodies.set(url, changed);
  }
  return bodies;
}
