import { type BodyReader, MAX_LOOKED_BYTES } from '../classify/body-reader.ts';
import { asksMetadata } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/models.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { narrowed } from '../plugin.ts';
import type { RequestHead } from '../wire/request-head.ts';
import type { FullWorkers } from './full-workers.ts';
import type { Hold, MoveWhy, Policy } from './policy.ts';
import type { PolicyTable } from './policy-table.ts';
import { withoutSpared, usable } from './roles.ts';
import type { SessionPlaces } from './session-places.ts';
import type { SlowStart } from './slow-start.ts';

/** What came of choosing: a placement (its work is counted already), a hold, a refusal, or nobody. */
export type Choice = Placement | Hold | RouterError | null;

/** What narrows the choice; left out: nothing does. */
export interface ChooserRooms {
  readonly full?: FullWorkers;
  readonly slowStart?: SlowStart;
  readonly models?: FleetModels;
  readonly explains?: boolean;
  /** Keeps where sessions are; left out: nothing does. */
  readonly places?: SessionPlaces;
}

/** The workers that were left at each step before the policy was asked. */
interface Narrowing {
  readonly offered: readonly Worker[];
  readonly open: readonly Worker[];
  readonly workers: readonly Worker[];
}

const NOBODY: readonly Worker[] = [];

/** An answer names so many models that there are. */
const MAX_NAMES = 8;

/** What SGLang (0.5.23) takes a request without a model to name; its clients write it too. */
const UNNAMED = 'default';

/** Eligible workers → policy → placement. Counts the placement's legs as in flight before anybody else can choose. */
export class Chooser {
  readonly table: PolicyTable;
  readonly #fleet: Fleet;
  readonly #reader: BodyReader;
  readonly #full: FullWorkers | null;
  readonly #slowStart: SlowStart | null;
  readonly #models: FleetModels | null;
  readonly #places: SessionPlaces | null;
  /** Whether each choice is put down with its reasons (`Exchange.candidates`). */
  explains: boolean;

  constructor(fleet: Fleet, table: PolicyTable, reader: BodyReader, rooms: ChooserRooms = {}) {
    const { full, slowStart, models, explains, places } = rooms;
    this.#fleet = fleet;
    this.#full = full ?? null;
    this.#slowStart = slowStart ?? null;
    this.#models = models ?? null;
    this.#places = places ?? null;
    this.table = table;
    this.#reader = reader;
    this.explains = explains ?? false;
  }

  /** Calls `then` when all is known of the request that a policy asks for: at once, or with its body's last byte. */
  prepare(x: Exchange, then: () => void): void {
    if (x.target !== null) return then();
    const { needs } = this.table;
    const hasModels = this.#models !== null && this.#models.areSeveral;
    const needsModel = this.table.needsModel || hasModels;
    if (needs === 'nothing' && !needsModel) return then();
    const isKeyKnown = this.#reader.readHead(x);
    const hasEnough = needs === 'headers' || needs === 'nothing' || (needs === 'key' && isKeyKnown);
    if (!needsModel && (hasEnough || (x.session !== '' && this.table.knowsSession(x)))) return then();
    if (!canWaitFor(x.head)) return then();
    x.body.whenComplete(() => {
      this.#reader.readBody(x, needs === 'prompt', hasModels ? () => this.#findModel(x, then) : then);
    });
  }

  /** A model that nobody serves may have come since engines were last asked: adapters do. */
  #findModel(x: Exchange, then: () => void): void {
    x.model ||= modelOf(x.path);
    if (x.model === '' || this.#models!.isServed(x.model)) return then();
    if (x.model === UNNAMED) {
      x.model = '';
      return then();
    }
    void this.#models!.lookAgain().then(then);
  }

  /** Throws what the policy throws: see `faultOf`. */
  choose(x: Exchange): Choice {
    if (x.target !== null) return this.#chooseTarget(x, x.target);
    const offered = this.#offered(x);
    if (offered instanceof RouterError) return offered;
    // Who failed it before is left out.
    const untried = usable(x, x.tried.length === 0 ? offered : offered.filter((worker) => !x.tried.includes(worker)));
    if (untried.length === 0) return this.#isModelUnknown(x) ? unknownModel(x.model, this.#models!.names()) : null;
    // What only asks for metadata takes no place of a request.
    const isLimited = this.#full !== null && !asksMetadata(x.head.method, x.path);
    const open = isLimited ? this.#full.withRoom(x, untried) : untried;
    if (open.length === 0) return this.#full!.hold(x);
    const slowStart = this.#slowStart;
    const workers = slowStart === null ? open : withoutSpared(x, open, slowStart);
    const policy = this.table.for(x);
    x.placer = policy;
    if (this.explains) x.candidates = policy.explain?.(x, workers) ?? null;
    const choice = policy.choose(x, workers);
    if ('legs' in choice) {
      x.placement = choice;
      x.isCounted = true;
      x.freed = null;
      // Before the policy learns of its own choice: what it knows of the session is still as it was.
      const to = choice.legs[choice.legs.length - 1]!.worker;
      const from = this.#noteWhy(x, to);
      if (from !== null) {
        this.#places!.moved(x, from, to, this.#whyMoved(x, from, to, policy, { offered, open, workers }));
      }
      for (const { worker } of choice.legs) {
        x.isTrial ||= worker.isOnTrial;
        this.#fleet.begin(worker);
        policy.begun?.(x, worker);
      }
    }
    return choice;
  }

  /** What to tell a client whose exchange its policy failed to place. */
  faultOf(x: Exchange, error: unknown): RouterError {
    const reason = error instanceof Error ? error.message : String(error);
    return new RouterError('policy_failed', `The policy "${this.table.nameFor(x)}" failed: ${reason}`);
  }

  /** @returns the worker that its session has just left; null: it left none */
  #noteWhy(x: Exchange, to: Worker): Worker | null {
    if (x.session !== '' && this.#places !== null) return this.#places.placed(x, to);
    x.why = x.tried.length > 0 ? 'retry' : 'policy';
    return null;
  }

  /** The first thing that spoke against the worker, in the order in which workers are narrowed. */
  #whyMoved(x: Exchange, from: Worker, to: Worker, policy: Policy, { offered, open, workers }: Narrowing): MoveWhy {
    if (x.tried.includes(from)) return { reason: 'retry' };
    if (!this.#fleet.has(from)) return { reason: 'removed' };
    const [reason] = from.reasonNames();
    if (reason !== undefined) return { reason };
    if (!offered.includes(from)) return { reason: x.plugins.length > 0 ? 'plugin' : 'model' };
    if (!open.includes(from)) return { reason: 'full' };
    if (!workers.includes(from)) return { reason: 'slow_start' };
    return policy.whyMoved?.(x, from, to) ?? { reason: 'policy' };
  }

  /** The one that its client named, once. */
  #chooseTarget(x: Exchange, worker: Worker): Choice {
    if (x.tried.includes(worker)) return null;
    x.placement = worker.alone;
    x.why = 'target';
    x.isCounted = true;
    x.isTrial ||= worker.isOnTrial;
    this.#fleet.begin(worker);
    return x.placement;
  }

  #isModelUnknown(x: Exchange): boolean {
    return this.#models !== null && this.#models.areSeveral && x.model !== '' && this.#models.isUnknown(x.model);
  }

  /** Workers that get new work, as far as they serve its model and plugins let them. */
  eligibleFor(x: Exchange): readonly Worker[] {
    if (x.target !== null) return NOBODY;
    const offered = this.#offered(x);
    return offered instanceof RouterError ? NOBODY : offered;
  }

  #offered(x: Exchange): readonly Worker[] | RouterError {
    const models = this.#models;
    const isAnyModel = models === null || !models.areSeveral || x.model === '';
    const eligible = isAnyModel ? this.#fleet.eligible : models.eligibleFor(x.model);
    return x.plugins.length === 0 ? eligible : narrowed(x, eligible);
  }

  /** One worker of a placement has done its part, and has room again. */
  free(x: Exchange, worker: Worker): void {
    if (!x.isCounted || x.freed !== null) return;
    x.freed = worker;
    this.#fleet.finish(worker);
  }

  /** The placement's work is over, however it ended. */
  release(x: Exchange): void {
    if (x.placement === null || !x.isCounted) return;
    x.isCounted = false;
    for (const { worker } of x.placement.legs) {
      if (worker !== x.freed) this.#fleet.finish(worker);
      x.placer?.ended?.(x, worker);
    }
    if (x.session === '') return;
    if (x.target === null) this.#places?.released(x);
    if (x.isLastTurn && x.outcome === 'complete') {
      this.#places?.ended(x.session);
      this.table.sessionEnded(x.session);
    }
  }
}

/** The words of the OpenAI API. */
function unknownModel(model: string, names: readonly string[]): RouterError {
  const served = names.slice(0, MAX_NAMES).map((name) => `\`${name}\``);
  const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more` : '';
  const message = `The model \`${model}\` does not exist. Served: ${served.join(', ')}${more} (GET /v1/models).`;
  return new RouterError('model_not_found', message);
}

const MODEL_PATH = '/v1/models/';
/** A model that a path asks about, '' for none. */
const modelOf = (path: string): string => (path.startsWith(MODEL_PATH) ? decoded(path.slice(MODEL_PATH.length)) : '');

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Whether a body may be waited for. One in chunks that is not JSON may have no end, or wait for the answer's beginning. */
function canWaitFor(head: RequestHead): boolean {
  if (head.isChunked) return /[/+]json\b/i.test(head.get('content-type') ?? '');
  return head.contentLength <= MAX_LOOKED_BYTES;
}
