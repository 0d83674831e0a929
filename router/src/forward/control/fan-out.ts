import { STATUS_CODES } from 'node:http';
import type { ControlPaths } from '../../engines/controls.ts';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Health } from '../../fleet/health.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import { RouterError } from '../../kit/errors.ts';
import { ownHead } from '../../wire/response-head.ts';
import { COMPLETE, type ResultListener } from '../../wire/result.ts';
import type { AttemptContext } from '../attempt-context.ts';
import { type AddressBook, addressOf } from './address.ts';
import { ControlCall, controlContext } from './control-call.ts';
import type { ControlEffects, EndControl } from './control-effects.ts';
import { type ControlResult, isDone, report } from './report.ts';

/** Takes part in control requests that go to several engines. */
export interface ControlHook {
  /** Before the engines get the request. */
  before(path: string, engines: readonly Worker[]): Promise<void>;
  /** All have answered: one worker of each engine that did it, and of each that did not. */
  after(path: string, done: readonly Worker[], failed: readonly Worker[]): Promise<void>;
}

export interface FanOutParts {
  readonly fleet: Fleet;
  readonly paths: ControlPaths;
  readonly effects: ControlEffects;
  readonly homesOf: AddressBook['homesOf'];
  readonly health: Health;
  readonly clock: CoarseClock;
  /** null: control requests are passed on only. */
  readonly hook: ControlHook | null;
  /** Learns how each engine responded to a control request, as the responses come. */
  readonly onResult: (x: Exchange, result: ControlResult) => void;
}

/** Sends control requests to all engines at once, or to those that the client names. */
export class FanOut {
  readonly #parts: FanOutParts;
  readonly #context: AttemptContext;
  /** Control requests for one named worker, whose response the client gets. */
  readonly #single = new WeakMap<Exchange, EndControl>();

  constructor(parts: FanOutParts) {
    this.#parts = parts;
    this.#context = controlContext(parts.clock);
  }

  /** Finds the workers that a request is for (`target`, `audience`) unless a policy chooses one. @returns what is wrong */
  address(x: Exchange): RouterError | null {
    if (x.isGeneration) return null;
    const { fleet, paths, effects } = this.#parts;
    const { isAddressable, goesToAll } = paths.of(x.path, x.head.method);
    const address = addressOf(x.head, this.#parts, isAddressable);
    if (address instanceof RouterError) return address;
    if (address === null) {
      if (!goesToAll) return null;
      x.audience = fleet.workers;
      if (x.audience.length === 0) return new RouterError('no_available_workers', 'The fleet has no workers.');
    } else if ('audience' in address) x.audience = address.audience;
    else {
      x.target = address.target;
      x.isForEngine = address.isForEngine;
      if (isAddressable) this.#single.set(x, effects.begin(x.path, x.target));
    }
    x.isControl = isAddressable;
    return null;
  }

  /** Sends it to every engine of its audience; the response is a report of theirs. */
  send(x: Exchange, listener: ResultListener<Exchange>): void {
    // Several workers that are ranks of one engine get one call.
    const engines = Map.groupBy(x.audience!, ({ engineUrl }) => engineUrl);
    // Compressed responses can't be part of a JSON report.
    x.head.drop('accept-encoding');
    x.isForEngine = true;
    x.body.whenComplete(() => void this.#sendAll(x, engines, listener));
  }

  /** A request for one worker has ended: the effects of a control request are those of `send`. */
  finished(x: Exchange): void {
    const { fleet, effects } = this.#parts;
    const end = this.#single.get(x);
    const hasDone = x.outcome === 'complete' && x.status < 300;
    end?.(x.status, hasDone);
    if (x.isGeneration || x.audience !== null || !hasDone || x.worker === null) return;
    if (end === undefined) effects.updated(x.path, x.worker);
    const { engineUrl } = x.worker;
    const workers = fleet.workers.filter((worker) => worker.engineUrl === engineUrl);
    void effects.done(x.path, workers);
  }

  async #sendAll(
    x: Exchange,
    engines: ReadonlyMap<string, readonly Worker[]>,
    listener: ResultListener<Exchange>,
  ): Promise<void> {
    const { effects, hook } = this.#parts;
    const bodies = await changedBodies(x, engines);
    if (x.outcome !== null) return;
    if (bodies instanceof RouterError) return listener.ended(x, { kind: 'refused', error: bodies });
    if (hook !== null) await hook.before(x.path, firstOf([...engines.values()]));
    const calls = Array.from(engines, ([url, [worker]]) => {
      x.attempts++;
      return {
        url,
        end: effects.begin(x.path, worker!),
        startMs: performance.now(),
        call: new ControlCall(x, worker!, bodies.get(url) ?? null, this.#context),
      };
    });
    x.underWay = {
      abort() {
        for (const { call } of calls) call.abort();
      },
    };
    const results = await Promise.all(
      calls.map(async ({ url, end, startMs, call }) => {
        const result: ControlResult = { ...(await call.answer), worker: url, ms: performance.now() - startMs };
        end(result.status, isDone(result));
        if (x.outcome === null) this.#note(x, result, engines.get(url)!);
        return result;
      }),
    );
    // Before the response: its reader must find the fleet as it is now.
    const done = results.filter(isDone).map(({ worker }) => engines.get(worker)!);
    await effects.done(x.path, done.flat());
    if (hook !== null) {
      const failed = results.filter((result) => !isDone(result)).map(({ worker }) => engines.get(worker)!);
      await hook.after(x.path, firstOf(done), firstOf(failed));
    }
    if (x.outcome !== null) return;
    respond(x, results, listener);
    listener.ended(x, COMPLETE);
  }

  #note(x: Exchange, result: ControlResult, workers: readonly Worker[]): void {
    if (result.status === null) for (const worker of workers) this.#parts.health.suspect(worker);
    this.#parts.onResult(x, result);
  }
}

const firstOf = (engines: readonly (readonly Worker[])[]): Worker[] => engines.map(([worker]) => worker!);

function respond(x: Exchange, results: readonly ControlResult[], listener: ResultListener<Exchange>): void {
  const { status, json } = report(results);
  const body = Buffer.from(json);
  const head = ownHead(status, STATUS_CODES[status]!, 'content-type: application/json\r\n', body.length);
  x.isAnswerOut = true;
  listener.began?.(x, head);
  x.sink.head(head);
  x.sink.body(body, 0, body.length);
  x.sink.end();
}

/** What plugins make of the body for each engine; empty if no plugin takes it. */
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
