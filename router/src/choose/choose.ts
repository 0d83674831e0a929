import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { type PlacedRequest, hasSucceeded } from '../placed-request.ts';
import { type Explains, explainChoice } from './explain-choice.ts';
import type { FullWorkers } from './full-workers.ts';
import { type WorkerSet, HoldQueue, NO_SET } from './hold-queue.ts';
import type { Hold, MoveWhy, Policy, SwapGate } from './policy.ts';
import type { PolicyTable } from './policy-table.ts';
import { type SlowStart, usable, withoutSpared } from './usable-workers.ts';
import type { SessionHomes } from './session-homes.ts';

/** A placement (already counted as in flight), a hold, an error for the client, or null if no worker is left. */
export type Choice = Placement | Hold | RouterError | null;

/** What narrows the workers before the policy chooses. A part that is left out narrows nothing. */
export interface ChooserParts {
  readonly queue?: HoldQueue;
  readonly full?: FullWorkers;
  readonly slowStart?: SlowStart;
  readonly models?: FleetModels;
  readonly explains?: Explains;
  /** Records where sessions are. */
  readonly homes?: SessionHomes;
  /** Called after each choice of a worker. */
  onPlaced?(x: PlacedRequest): void;
}

const NO_WORKERS: readonly Worker[] = [];

/**
 * Places requests: the facts of a request → placement, hold or refusal; then `released` or `failed`. It knows no sockets and no bodies.
 */
export class Chooser {
  readonly #table: PolicyTable;
  readonly #fleet: Fleet;
  readonly #queue: HoldQueue;
  readonly #full: FullWorkers | null;
  readonly #slowStart: SlowStart | null;
  readonly #models: FleetModels | null;
  readonly #homes: SessionHomes | null;
  readonly #onPlaced: (x: PlacedRequest) => void;
  /** Which choices are recorded with their candidates (`PlacedRequest.candidates`). */
  explains: Explains;
  /** null: weights are not swapped. */
  gate: SwapGate | null = null;
  /** The workers that were left after each step of the last choice. */
  readonly #left = { byModel: NO_WORKERS, allowed: NO_WORKERS, gated: NO_WORKERS, open: NO_WORKERS, asked: NO_WORKERS };

  constructor(fleet: Fleet, table: PolicyTable, parts: ChooserParts = {}) {
    const { queue, full, slowStart, models, explains, homes, onPlaced } = parts;
    this.#fleet = fleet;
    this.#queue = queue ?? new HoldQueue();
    this.#full = full ?? null;
    this.#slowStart = slowStart ?? null;
    this.#models = models ?? null;
    this.#homes = homes ?? null;
    this.#onPlaced = onPlaced ?? (() => {});
    this.#table = table;
    this.explains = explains ?? 'none';
  }

  /** A policy that throws ends its request, not the router. */
  place(x: PlacedRequest): Choice {
    x.arrive();
    try {
      const choice = x.target === null ? this.#choose(x) : this.#toTarget(x, x.target);
      return choice !== null && 'hold' in choice && x.isOverdueFor(x.placer!) ? heldTooLong(choice) : choice;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      return new RouterError('policy_failed', `The policy "${this.#table.nameFor(x)}" failed: ${reason}`);
    }
  }

  /** The request waits. `again` is called to place it again: when something has changed, and a last time after the maximum. */
  wait(x: PlacedRequest, { hold, maxMs }: Hold, again: () => void): void {
    this.#queue.hold(x, hold, maxMs, x.placer!, again, again);
  }

  /** One worker of the placement has finished its part. */
  free(x: PlacedRequest, worker: Worker): void {
    if (x.isCounted && x.freed === null) {
      x.freed = worker;
      this.#fleet.finish(worker);
    }
    this.retryHeld();
  }

  /** The attempt has failed. `tried`: the workers that must not get the next one. */
  failed(x: PlacedRequest, tried: readonly Worker[]): void {
    this.released(x);
    x.tried = tried;
    // It may wait, and others can go where it was.
    this.retryHeld();
  }

  /** The placement has ended, with any outcome. */
  released(x: PlacedRequest): void {
    if (x.placement === null || !x.isCounted) return;
    x.isCounted = false;
    for (const { worker } of x.placement.legs) {
      if (worker !== x.freed) this.#fleet.finish(worker);
      x.placer?.ended?.(x, worker);
    }
    if (x.session === '') return;
    if (x.target === null && isTurn(x)) this.#homes?.released(x);
    if (x.isLastTurn && hasSucceeded(x)) {
      this.#homes?.ended(x.session);
      this.#table.sessionEnded(x.session);
    }
  }

  /** A gateway has sent the request to another worker than the placed one: it counts there from now on. */
  servedBy(x: PlacedRequest, worker: Worker): void {
    if (x.outcome !== null) return;
    this.released(x);
    x.placer = null;
    x.placement = worker.alone;
    this.#count(x, worker);
    this.retryHeld();
  }

  /** Something ended or changed that requests may be held for. */
  retryHeld(): void {
    if (this.#queue.size > 0) this.#queue.retryHeld();
  }

  /** The workers that may get this request: those that serve its model and that no plugin excludes. */
  eligibleFor(x: PlacedRequest): readonly Worker[] {
    if (x.target !== null) return NO_WORKERS;
    const allowed = x.allowed(this.#byModel(x));
    return allowed instanceof RouterError ? NO_WORKERS : allowed;
  }

  /** The workers that may get a held request: see `HoldQueue`. */
  setOf(x: PlacedRequest): WorkerSet {
    const allowed = x.allowed(this.#byModel(x));
    if (allowed instanceof RouterError) return NO_SET;
    const workers = usable(x, allowed);
    if (workers.length === 0) return NO_SET;
    return { key: workers === this.#fleet.eligible ? '' : workers.map(({ slot }) => slot).join(), workers };
  }

  /** Leaves out workers step by step, then asks the policy. */
  #choose(x: PlacedRequest): Choice {
    const left = this.#left;
    left.byModel = this.#byModel(x);
    const allowed = x.allowed(left.byModel);
    if (allowed instanceof RouterError) return allowed;
    left.allowed = allowed;
    const untried = x.tried.length === 0 ? allowed : allowed.filter((worker) => !x.tried.includes(worker));
    const able = x.roles === null ? untried : usable(x, untried);
    if (able.length === 0) return this.#severalModels === null ? null : unknownModel(x, this.#severalModels);
    const policy = this.#table.for(x);
    const gate = this.gate?.isActive === true && !x.readsState ? this.gate : null;
    const pairs = x.roles?.length === 2 ? this.gate : null;
    const closedTo = this.#leaveClosed(x, able, policy, gate);
    if (closedTo !== null) return closedTo;
    left.open = this.#isScarce(x) ? this.#full!.withRoom(x, left.gated) : left.gated;
    if (left.open.length === 0) return this.#full!.hold(x);
    left.asked = this.#slowStart?.isActive === true ? withoutSpared(x, left.open, this.#slowStart) : left.open;
    x.placer = policy;
    x.isOverdue = x.isOverdueFor(policy);
    const choice = pairs === null ? policy.choose(x, left.asked) : this.#choosePair(x, policy, pairs);
    if (!('legs' in choice)) return choice;
    const closed = (pairs ?? gate)?.admit(x, choice) ?? null;
    if (closed === null) this.#begin(x, choice, policy);
    return closed ?? choice;
  }

  /** Leaves out workers whose weights are being replaced. @returns why the request waits although some are open; null: it does not */
  #leaveClosed(
    x: PlacedRequest,
    able: readonly Worker[],
    policy: Policy,
    gate: SwapGate | null,
  ): Hold | RouterError | null {
    const left = this.#left;
    const isNarrowed = gate !== null && !isHashed(x, policy);
    const home = isNarrowed ? this.#homeOf(x, policy) : null;
    left.gated = isNarrowed ? gate.openOf(x, able, home) : able;
    const matching = x.roles?.length === 2 ? this.gate?.matching(left.gated) : undefined;
    if (matching !== undefined && matching.length > 0) left.gated = matching;
    const waitsForAny = isNarrowed && matching?.length !== 0 && (home === null || !able.includes(home));
    if (!waitsForAny) return null;
    const share = gate.shareOf(x, left.gated, able);
    if (!('length' in share)) return share;
    left.gated = share;
    return null;
  }

  /** The engines of a pair must have the same weights. If no two have, the gate says what becomes of the request. */
  #choosePair(x: PlacedRequest, policy: Policy, pairs: SwapGate): Placement | Hold | RouterError {
    const { gated, open, asked } = this.#left;
    const able = [asked, open].map((workers) => pairs.matching(workers)).find(({ length }) => length > 0);
    if (able === undefined && open.length < gated.length && pairs.matching(gated).length > 0)
      return this.#full!.hold(x);
    const choice = policy.choose(x, able ?? asked);
    if (able === undefined || 'hold' in choice) return choice;
    // The session stays at its decode engine.
    const decode = choice.legs.at(-1)!.worker;
    const left = pairs.matching(able, decode);
    return choice.legs.every(({ worker }) => left.includes(worker)) ? choice : policy.choose(x, left);
  }

  /** The placement is in flight from here on. */
  #begin(x: PlacedRequest, placement: Placement, policy: Policy): void {
    x.placement = placement;
    x.freed = null;
    const to = placement.legs.at(-1)!.worker;
    const from = this.#noteWhy(x, to);
    // Before `begun`: `whyMoved` needs the policy's state of the session as it was before this choice.
    if (from !== null) this.#homes!.moved(x, from, to, this.#whyMoved(x, from, to, policy));
    if (this.explains === 'all' || (this.explains === 'sessions' && x.why !== 'home' && x.why !== 'policy')) {
      x.candidates = explainChoice(x, policy, this.#left.asked);
    }
    for (const { worker } of placement.legs) {
      this.#count(x, worker);
      policy.begun?.(x, worker);
    }
    this.#onPlaced(x);
  }

  #count(x: PlacedRequest, worker: Worker): void {
    // Not before: where a call before this one throws, `released` must not finish workers that were not begun.
    x.isCounted = true;
    if (worker.isOnTrial) x.trials = [...x.trials, worker];
    this.#fleet.begin(worker);
  }

  /** @returns the worker that the session has just left, or null */
  #noteWhy(x: PlacedRequest, to: Worker): Worker | null {
    if (isTurn(x) && this.#homes !== null) return this.#homes.placed(x, to);
    x.why = x.tried.length > 0 ? 'retry' : 'policy';
    return null;
  }

  /** The worker that the session stays at and waits for; null: the request may go to any. */
  #homeOf({ session }: PlacedRequest, policy: Policy): Worker | null {
    if (session === '') return null;
    // By a policy that keeps no sessions, their last requests may have filled a cache.
    return policy.homeOf === undefined ? (this.#homes?.get(session)?.worker ?? null) : policy.homeOf(session);
  }

  /** The first reason against the worker, in the order in which the workers are narrowed. */
  #whyMoved(x: PlacedRequest, from: Worker, to: Worker, policy: Policy): MoveWhy {
    const { byModel, allowed, gated, open, asked } = this.#left;
    if (x.tried.includes(from)) return { reason: 'retry' };
    if (!this.#fleet.has(from)) return { reason: 'removed' };
    const [reason] = from.reasonNames();
    if (reason !== undefined) return { reason };
    if (!byModel.includes(from)) return { reason: 'model' };
    if (!allowed.includes(from)) return { reason: 'plugin' };
    if (!gated.includes(from)) return { reason: 'weight_swap' };
    if (!open.includes(from)) return { reason: 'full' };
    if (!asked.includes(from)) return { reason: 'slow_start' };
    return policy.whyMoved?.(x, from, to) ?? { reason: 'policy' };
  }

  /** The caller named the worker. There is one attempt. */
  #toTarget(x: PlacedRequest, worker: Worker): Choice {
    if (x.tried.includes(worker)) return null;
    // Its slot may belong to another worker.
    if (!this.#fleet.has(worker)) return new RouterError('worker_not_found', `The worker ${worker.id} was removed.`);
    const closed = x.isGeneration ? (this.gate?.admit(x, worker.alone) ?? null) : null;
    if (closed !== null) return closed;
    x.placement = worker.alone;
    x.why = 'target';
    this.#count(x, worker);
    this.#onPlaced(x);
    return x.placement;
  }

  #byModel({ model }: PlacedRequest): readonly Worker[] {
    const models = this.#severalModels;
    return models === null || model === '' ? this.#fleet.eligible : models.eligibleFor(model);
  }

  /** null: all workers serve the same models. */
  get #severalModels(): FleetModels | null {
    return this.#models?.areSeveral === true ? this.#models : null;
  }

  /** Some worker is full, or requests are held: the limit per worker is checked. */
  #isScarce({ readsState }: PlacedRequest): boolean {
    return this.#full !== null && (this.#fleet.fullCount > 0 || this.#queue.size > 0) && !readsState;
  }
}

/** A client may send the header of its session with everything: a list of models says nothing about where the session is. */
const isTurn = ({ session, cacheUse }: PlacedRequest): boolean => session !== '' && cacheUse === 'turn';

/** The holder held the request for as long as it may. */
const heldTooLong = ({ hold, maxMs }: Hold): RouterError =>
  new RouterError('queue_timeout', `Held for ${maxMs} ms (${hold}). Retry later.`);

/** The session goes to one worker from its first request on, whatever state that worker is in. */
const isHashed = (x: PlacedRequest, policy: Policy): boolean => x.session !== '' && policy.hashes?.(x) === true;

/** At most this many model names are listed in an error message. */
const MAX_NAMES = 8;

/**
 * The error of a request whose model no worker is known to serve, in the words of the OpenAI API; null: its model exists, or it has none.
 */
function unknownModel({ model }: PlacedRequest, models: FleetModels): RouterError | null {
  if (model === '' || models.isServed(model)) return null;
  const { unread } = models;
  if (unread.length > 0) return notYetKnown(model, unread);
  const names = models.names();
  const served = names.slice(0, MAX_NAMES).map((name) => `\`${name}\``);
  const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more` : '';
  const message = `The model \`${model}\` does not exist. Served: ${served.join(', ')}${more} (GET /v1/models).`;
  return new RouterError('model_not_found', message);
}

/** Names workers by their ids, because clients must not read the addresses of engines. */
function notYetKnown(model: string, unread: readonly Worker[]): RouterError {
  const ids = unread.slice(0, MAX_NAMES).map(({ id }) => id);
  const more = unread.length > MAX_NAMES ? `, and ${unread.length - MAX_NAMES} more` : '';
  const message =
    `No worker is known to serve the model \`${model}\`, and the models of ${unread.length} workers are not known yet: ` +
    `${ids.join(', ')}${more}. Retry after retry-after. See GET /workers; remove a worker that does not start (DELETE /workers/ID).`;
  return new RouterError('no_available_workers', message);
}
