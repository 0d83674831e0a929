import { STATUS_CODES } from 'node:http';
import { type ControlPaths, controlOf, mayNameMemory } from '../../engines/controls.ts';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Health } from '../../fleet/health.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import { RouterError } from '../../kit/errors.ts';
import { ownHead } from '../../wire/response-head.ts';
import { COMPLETE, type ResultListener } from '../../wire/result.ts';
import type { Sink } from '../../wire/sink.ts';
import type { AttemptContext, Leading } from '../attempt-context.ts';
import { type AddressBook, addressOf } from './address.ts';
import { ControlCall, type PassedOn, controlContext } from './control-call.ts';
import type { ControlEffects } from './control-effects.ts';
import { type ControlResult, isDone, report } from './report.ts';

/** Takes part in control requests; in those for one named worker if they change its weights. */
export interface ControlHook {
  /** Before the engines get the request. */
  before(path: string, engines: readonly Worker[]): Promise<void>;
  /** All have responded: one worker of each engine that did it, and of each that did not. */
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
  /** Whether the client may know the addresses of engines. */
  readonly mayKnowAddresses: (x: Exchange) => boolean;
  /** Learns how each engine responded to a control request, as the responses come. */
  readonly onResult: (x: Exchange, result: ControlResult) => void;
}

/**
 * Sends control requests to all engines at once, or to those that the client names, each on a connection of its own. The response is a
 * report; for one named worker it is the engine's own.
 */
export class FanOut {
  readonly #parts: FanOutParts;
  readonly #context: AttemptContext;

  constructor(parts: FanOutParts) {
    this.#parts = parts;
    this.#context = controlContext(parts.clock);
  }

  /**
   * Finds the workers for a request that is not a generation. Sets `audience` if the fan-out is to send the request. Sets `target` if
   * the client names one worker for a request that is not a control request: the request is then forwarded without a policy.
   * @returns what is wrong
   */
  address(x: Exchange): RouterError | null {
    const { fleet, paths } = this.#parts;
    const { isAddressable, goesToAll } = paths.of(x.path, x.head.method);
    const address = addressOf(x.head, this.#parts, isAddressable);
    if (address instanceof RouterError) return address;
    if (address === null) {
      if (!goesToAll) return null;
      x.audience = fleet.workers;
      if (x.audience.length === 0) return new RouterError('no_available_workers', 'The fleet has no workers.');
    } else if ('audience' in address) x.audience = address.audience;
    else {
      x.isForEngine = address.isForEngine;
      if (!isAddressable) x.target = address.target;
      else {
        x.audience = [address.target];
        x.why = 'target';
      }
    }
    return null;
  }

  /**
   * Sends it to every engine of its audience.
   *
   * @param listener gets the end of a request with a report
   * @param forwarder gets the response of a named worker
   */
  send(x: Exchange, listener: ResultListener<Exchange>, forwarder: ResultListener<Leading>): void {
    // Several workers that are ranks of one engine get one call.
    const engines = Map.groupBy(x.audience!, ({ engineUrl }) => engineUrl);
    let passedOn: PassedOn | null = null;
    if (x.why === 'target') {
      x.placement = x.audience![0]!.alone;
      passedOn = { sink: this.#sinkOf(x, listener), listener: forwarder };
    } else {
      // Compressed responses can't be part of a JSON report.
      x.refuseCompression();
      x.isForEngine = true;
    }
    const send = (): void => void this.#sendAll(x, engines, listener, passedOn);
    const control = controlOf(x.path);
    // Several engines take one body, each at its own pace. Of a call for memory it is read, too.
    if (engines.size > 1 || (control !== null && mayNameMemory(control))) x.body.whenComplete(send);
    else send();
  }

  /** A forwarded request has ended. If it was a control request, it has the effects of one that `send` sent. Not called for generations. */
  finished(x: Exchange): void {
    if (x.audience !== null || x.worker === null || x.outcome !== 'complete' || x.status! >= 300) return;
    const { effects } = this.#parts;
    effects.updated(x.path, x.worker);
    const workers = this.#ranksOf(x.worker);
    effects.emptied(x, workers);
    void effects.done(x, workers, true);
  }

  /** The client's sink, after the plugins that change or observe the response. */
  #sinkOf(x: Exchange, listener: ResultListener<Exchange>): Sink {
    return x.plugins.sink(x, (error) => listener.ended(x, { kind: 'refused', error }));
  }

  async #sendAll(
    x: Exchange,
    engines: ReadonlyMap<string, readonly Worker[]>,
    listener: ResultListener<Exchange>,
    passedOn: PassedOn | null,
  ): Promise<void> {
    const { fleet, effects } = this.#parts;
    const takesPart = passedOn === null || controlOf(x.path)?.changesVersion === true;
    const hook = takesPart ? this.#parts.hook : null;
    const bodies = await changedBodies(x, engines);
    if (x.outcome !== null) return;
    if (bodies instanceof RouterError) return listener.ended(x, { kind: 'refused', error: bodies });
    if (hook !== null) {
      const all = firstOf([...engines.values()]);
      await hook.before(x.path, all);
      // Its client has left meanwhile: no engine gets the request, whose body is released.
      if (x.outcome !== null) return hook.after(x.path, [], all);
    }
    const calls = Array.from(engines, ([url, [worker]]) => {
      x.attempts++;
      const changed = bodies.get(url) ?? null;
      const body = engines.size > 1 ? x.body.shared() : x.body;
      return {
        worker: worker!,
        end: effects.begin(x, worker!),
        startMs: performance.now(),
        call: new ControlCall(x, worker!, changed, body, this.#context, passedOn),
      };
    });
    x.activity = {
      abort() {
        for (const { call } of calls) call.abort();
      },
    };
    const results = await Promise.all(
      calls.map(async ({ worker, end, startMs, call }) => {
        const answer = await call.answer;
        const result: ControlResult = { ...answer, worker: worker.engineUrl, ms: performance.now() - startMs };
        end(result.status, isDone(result));
        if (isDone(result)) effects.emptied(x, this.#ranksOf(worker));
        if (x.outcome === null) this.#note(x, result, engines.get(worker.engineUrl)!);
        if (x.outcome === null && passedOn !== null) passedOn.listener.ended({ x, worker }, call.result!);
        return result;
      }),
    );
    const done = results.filter(isDone).map(({ worker }) => worker);
    // Before a report: its reader must find the fleet as it is now.
    await effects.done(
      x,
      fleet.workers.filter(({ engineUrl }) => done.includes(engineUrl)),
      passedOn !== null,
    );
    if (hook !== null) {
      const failed = results.filter((result) => !isDone(result)).map(({ worker }) => engines.get(worker)!);
      await hook.after(x.path, firstOf(done.map((url) => engines.get(url)!)), firstOf(failed));
    }
    if (x.outcome !== null) return;
    const isTold = this.#parts.mayKnowAddresses(x);
    const idOf = (url: string): string => engines.get(url)![0]!.id;
    const told = isTold ? results : results.map((result) => ({ ...result, worker: idOf(result.worker) }));
    respond(x, told, listener);
    listener.ended(x, COMPLETE);
  }

  /** The workers of the same engine: a control request changes all of them. */
  #ranksOf({ engineUrl }: Worker): Worker[] {
    return this.#parts.fleet.workers.filter((worker) => worker.engineUrl === engineUrl);
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
  const head = ownHead(status, STATUS_CODES[status] ?? '', 'content-type: application/json\r\n', body.length);
  x.headGoesTo(x.sink);
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
