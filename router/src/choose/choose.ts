import { type BodyReader, MAX_LOOKED_BYTES } from '../classify/body-reader.ts';
import { flushingPaths } from '../engines/controls.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { RequestHead } from '../wire/request-head.ts';
import type { FullWorkers } from './full-workers.ts';
import type { Hold } from './policy.ts';
import type { PolicyTable } from './policy-table.ts';
import { withoutSpared, usable } from './roles.ts';
import type { SlowStart } from './slow-start.ts';

/** What came of choosing: a placement (its work is counted already), a hold, a refusal, or nobody. */
export type Choice = Placement | Hold | RouterError | null;

/** What narrows the choice; left out: nothing does. */
export interface ChooserRooms {
  readonly full?: FullWorkers;
  readonly slowStart?: SlowStart;
  readonly explains?: boolean;
}

/** Eligible workers → policy → placement. Counts the placement's legs as in flight before anybody else can choose. */
export class Chooser {
  readonly table: PolicyTable;
  readonly #fleet: Fleet;
  readonly #reader: BodyReader;
  readonly #full: FullWorkers | null;
  readonly #slowStart: SlowStart | null;
  /** Whether each choice is put down with its reasons (`Exchange.candidates`). */
  explains: boolean;

  constructor(fleet: Fleet, table: PolicyTable, reader: BodyReader, { full, slowStart, explains }: ChooserRooms = {}) {
    this.#fleet = fleet;
    this.#full = full ?? null;
    this.#slowStart = slowStart ?? null;
    this.table = table;
    this.#reader = reader;
    this.explains = explains ?? false;
  }

  /** Calls `then` when all is known of the request that a policy asks for: at once, or with its body's last byte. */
  prepare(x: Exchange, then: () => void): void {
    const { needs, needsModel } = this.table;
    if (needs === 'nothing' && !needsModel) return then();
    const isKeyKnown = this.#reader.readHead(x);
    const hasEnough = needs === 'headers' || needs === 'nothing' || (needs === 'key' && isKeyKnown);
    if (!needsModel && (hasEnough || (x.session !== '' && this.table.knowsSession(x)))) return then();
    if (!canWaitFor(x.head)) return then();
    x.body.whenComplete(() => {
      this.#reader.readBody(x, needs === 'prompt', then);
    });
  }

  /** Throws what the policy throws: see `faultOf`. */
  choose(x: Exchange): Choice {
    const untried = this.candidates(x);
    if (untried.length === 0) return null;
    const open = this.#full === null ? untried : this.#full.withRoom(x, untried);
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

  /** Workers that get new work. */
  get eligible(): readonly Worker[] {
    return this.#fleet.eligible;
  }

  /** Who could get it: eligible, and did not fail it before. */
  candidates(x: Exchange): readonly Worker[] {
    const { eligible } = this.#fleet;
    return usable(x, x.tried.length === 0 ? eligible : eligible.filter((worker) => !x.tried.includes(worker)));
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
      if (flushingPaths.has(x.path) && x.status < 300 && x.outcome === 'complete') this.table.flushed(worker);
    }
    if (x.isLastTurn && x.outcome === 'complete' && x.session !== '') this.table.sessionEnded(x.session);
  }
}

/** Whether a body may be waited for. One in chunks that is not JSON may have no end, or wait for the answer's beginning. */
function canWaitFor(head: RequestHead): boolean {
  if (head.isChunked) return /[/+]json\b/i.test(head.get('content-type') ?? '');
  return head.contentLength <= MAX_LOOKED_BYTES;
}
