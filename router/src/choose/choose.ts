import { type BodyReader, MAX_LOOKED_BYTES } from '../classify/body-reader.ts';
import { asksMetadata } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { type Explains, explainChoice } from './explain-choice.ts';
import type { FullWorkers } from './full-workers.ts';
import type { WorkerSet } from './hold-queue.ts';
import type { Hold, MoveWhy, Policy, SwapGate } from './policy.ts';
import type { PolicyTable } from './policy-table.ts';
import { findModel, unknownModel } from './requested-model.ts';
import { type SlowStart, usable, withoutSpared } from './usable-workers.ts';
import type { SessionHomes } from './session-homes.ts';

/** A placement (already counted as in flight), a hold, an error for the client, or null if no worker is left. */
export type Choice = Placement | Hold | RouterError | null;

/** What narrows the workers before the policy chooses. A part that is left out narrows nothing. */
export interface ChooserParts {
  readonly full?: FullWorkers;
  readonly slowStart?: SlowStart;
  readonly models?: FleetModels;
  readonly explains?: Explains;
  /** Records where sessions are. */
  readonly homes?: SessionHomes;
  /** Called after each choice of a worker. */
  readonly onPlaced?: (x: Exchange) => void;
}

/** The workers that were left after each step, before the policy chose. */
interface Narrowing {
  readonly offered: readonly Worker[];
  readonly open: readonly Worker[];
  readonly workers: readonly Worker[];
}

const NO_WORKERS: readonly Worker[] = [];
const NO_SET: WorkerSet = { key: 'none', workers: NO_WORKERS };

/** Eligible workers → policy → placement, whose legs count as in flight in the same tick. */
export class Chooser {
  readonly table: PolicyTable;
  readonly #fleet: Fleet;
  readonly #reader: BodyReader;
  readonly #full: FullWorkers | null;
  readonly #slowStart: SlowStart | null;
  readonly #models: FleetModels | null;
  readonly #homes: SessionHomes | null;
  readonly #onPlaced: (x: Exchange) => void;
  /** Which choices are recorded with their candidates (`Exchange.candidates`). */
  explains: Explains;
  /** null: weights are not swapped. */
  gate: SwapGate | null = null;

  constructor(fleet: Fleet, table: PolicyTable, reader: BodyReader, parts: ChooserParts = {}) {
    const { full, slowStart, models, explains, homes, onPlaced } = parts;
    this.#fleet = fleet;
    this.#full = full ?? null;
    this.#slowStart = slowStart ?? null;
    this.#models = models ?? null;
    this.#homes = homes ?? null;
    this.#onPlaced = onPlaced ?? (() => {});
    this.table = table;
    this.#reader = reader;
    this.explains = explains ?? 'none';
  }

  /**
   * Calls `then` when everything that the policy needs of the request is known: at once, or when its body is complete.
   */
  prepare(x: Exchange, then: () => void): void {
    if (x.target !== null) return then();
    const { needs } = this.table;
    const models = this.#severalModels;
    const needsModel = this.table.needsModel || models !== null;
    if (needs === 'nothing' && !needsModel) return then();
    const isKeyKnown = this.#reader.readHead(x);
    const hasEnough = needs === 'headers' || needs === 'nothing' || (needs === 'key' && isKeyKnown);
    if (!needsModel && (hasEnough || (x.session !== '' && this.table.knowsSession(x)))) return then();
    if (!canWaitFor(x.head)) return then();
    x.body.whenComplete(() => {
      this.#reader.readBody(x, needs === 'prompt', models === null ? then : () => findModel(x, models, then));
    });
  }

  /** As `choose`; a policy that throws ends its exchange, not the router. */
  ask(x: Exchange): Choice {
    try {
      return this.choose(x);
    } catch (error) {
      return this.faultOf(x, error);
    }
  }

  /** Leaves out workers step by step, then asks the policy. Throws what the policy throws: see `faultOf`. */
  choose(x: Exchange): Choice {
    if (x.target !== null) return this.#chooseTarget(x, x.target);
    const offered = this.#offered(x);
    if (offered instanceof RouterError) return offered;
    const untried = x.tried.length === 0 ? offered : offered.filter((worker) => !x.tried.includes(worker));
    const able = x.roles === null ? untried : usable(x, untried);
    if (able.length === 0) {
      const models = this.#severalModels;
      return models === null ? null : unknownModel(x, models);
    }
    const full = this.#full;
    const isScarce = full !== null && (this.#fleet.fullCount > 0 || full.queue.size > 0);
    // A request for metadata takes no capacity, so the limit per worker does not apply to it.
    const open = isScarce && !asksMetadata(x.head.method, x.path) ? full.withRoom(x, able) : able;
    if (open.length === 0) return full!.hold(x);
    const slowStart = this.#slowStart;
    const spared = slowStart?.isActive === true ? withoutSpared(x, open, slowStart) : open;
    const policy = this.table.for(x);
    const gate = this.gate?.isActive === true && !asksMetadata(x.head.method, x.path) ? this.gate : null;
    // A session that has a home stays there, and waits.
    const workers = gate === null || hasHome(x, policy) ? spared : gate.openOf(x, spared);
    x.placer = policy;
    const choice = policy.choose(x, workers);
    if (!('legs' in choice)) return choice;
    const closed = gate?.admit(x, choice) ?? null;
    if (closed !== null) return closed;
    this.#place(x, choice, policy, { offered, open, workers });
    return choice;
  }

  /** The placement is in flight from here on. */
  #place(x: Exchange, placement: Placement, policy: Policy, narrowing: Narrowing): void {
    x.placement = placement;
    x.freed = null;
    const to = placement.legs.at(-1)!.worker;
    const from = this.#noteWhy(x, to);
    // Before `begun`: `whyMoved` needs the policy's state of the session as it was before this choice.
    if (from !== null) this.#homes!.moved(x, from, to, this.#whyMoved(x, from, to, policy, narrowing));
    if (this.explains === 'all' || (this.explains === 'sessions' && x.why !== 'home' && x.why !== 'policy')) {
      x.candidates = explainChoice(x, policy, narrowing.workers);
    }
    // Not before: where a call above throws, `release` must not finish workers that were not begun.
    x.isCounted = true;
    for (const { worker } of placement.legs) {
      x.isTrial ||= worker.isOnTrial;
      this.#fleet.begin(worker);
      policy.begun?.(x, worker);
    }
    this.#onPlaced(x);
  }

  /** The error for a client whose request the policy failed to place. */
  faultOf(x: Exchange, error: unknown): RouterError {
    const reason = error instanceof Error ? error.message : String(error);
    return new RouterError('policy_failed', `The policy "${this.table.nameFor(x)}" failed: ${reason}`);
  }

  /** @returns the worker that the session has just left, or null */
  #noteWhy(x: Exchange, to: Worker): Worker | null {
    if (x.session !== '' && this.#homes !== null) return this.#homes.placed(x, to);
    x.why = x.tried.length > 0 ? 'retry' : 'policy';
    return null;
  }

  /** The first reason against the worker, in the order in which the workers are narrowed. */
  #whyMoved(x: Exchange, from: Worker, to: Worker, policy: Policy, { offered, open, workers }: Narrowing): MoveWhy {
    if (x.tried.includes(from)) return { reason: 'retry' };
    if (!this.#fleet.has(from)) return { reason: 'removed' };
    const [reason] = from.reasonNames();
    if (reason !== undefined) return { reason };
    if (!offered.includes(from)) return { reason: !x.plugins.isEmpty ? 'plugin' : 'model' };
    if (!open.includes(from)) return { reason: 'full' };
    if (!workers.includes(from)) return { reason: 'slow_start' };
    return policy.whyMoved?.(x, from, to) ?? { reason: 'policy' };
  }

  /** A client or a plugin named the worker of a request that controls nothing. There is one attempt. */
  #chooseTarget(x: Exchange, worker: Worker): Choice {
    if (x.tried.includes(worker)) return null;
    const closed = x.isGeneration ? (this.gate?.admit(x, worker.alone) ?? null) : null;
    if (closed !== null) return closed;
    x.placement = worker.alone;
    x.why = 'target';
    x.isCounted = true;
    x.isTrial ||= worker.isOnTrial;
    this.#fleet.begin(worker);
    this.#onPlaced(x);
    return x.placement;
  }

  /** The workers that may get this request: those that serve its model and that no plugin excludes. */
  eligibleFor(x: Exchange): readonly Worker[] {
    if (x.target !== null || x.audience !== null) return NO_WORKERS;
    const offered = this.#offered(x);
    return offered instanceof RouterError ? NO_WORKERS : offered;
  }

  /** The workers that may get a held request: see `HoldQueue`. */
  setOf(x: Exchange): WorkerSet {
    const offered = this.#offered(x);
    if (offered instanceof RouterError) return NO_SET;
    const workers = usable(x, offered);
    return { key: workers === this.#fleet.eligible ? '' : workers.map(({ slot }) => slot).join(), workers };
  }

  #offered(x: Exchange): readonly Worker[] | RouterError {
    const models = this.#severalModels;
    const eligible = models === null || x.model === '' ? this.#fleet.eligible : models.eligibleFor(x.model);
    return x.plugins.choose(x, eligible);
  }

  /** null: all workers serve the same models. */
  get #severalModels(): FleetModels | null {
    return this.#models?.areSeveral === true ? this.#models : null;
  }

  /** One worker of the placement has finished its part. */
  free(x: Exchange, worker: Worker): void {
    if (!x.isCounted || x.freed !== null) return;
    x.freed = worker;
    this.#fleet.finish(worker);
  }

  /** The placement has ended, with any outcome. */
  release(x: Exchange): void {
    if (x.placement === null || !x.isCounted) return;
    x.isCounted = false;
    for (const { worker } of x.placement.legs) {
      if (worker !== x.freed) this.#fleet.finish(worker);
      x.placer?.ended?.(x, worker);
    }
    if (x.session === '') return;
    if (x.target === null) this.#homes?.released(x);
    if (x.isLastTurn && x.outcome === 'complete') {
      this.#homes?.ended(x.session);
      this.table.sessionEnded(x.session);
    }
  }
}

/** Whether the policy has decided where the session's requests go. By some policies its key alone decides. */
const hasHome = ({ session }: Exchange, policy: Policy): boolean =>
  session !== '' && (policy.homeOf === undefined || policy.homeOf(session) !== null);

/** Whether to wait for the whole body. A chunked body that is not JSON may never end, or wait for the response. */
function canWaitFor(head: RequestHead): boolean {
  if (head.isChunked) return /[/+]json\b/i.test(head.get('content-type') ?? '');
  return head.contentLength <= MAX_LOOKED_BYTES;
}
