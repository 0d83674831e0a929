import type { Exchange } from '../exchange.ts';
import type { StateKey } from '../phases/exchange-view.ts';

/** Answers of engines that end by an abort come so long after the response to it at most: on one machine within milliseconds. */
const LINGER_MS = 1_000;

/**
 * Paths that abort generations, all of them or only with some bodies: it is enough that they may (SGLang 0.5.23, vLLM 0.32, AReaL's vLLM
 * server cbff54d).
 */
const paths =
  /\/(?:abort_requests?|(?:areal_)?pause(?:_generation)?|update_weight_version|(?:areal_)?update_weights(?:_\w+)?|sleep|release_memory_occupation)$/;

/** Aborts that clients requested through the router: generations that end meanwhile are theirs to end. */
export class RequestedAborts {
  #inFlight = 0;
  #untilMs = -Infinity;
  readonly #open: StateKey<true> = {};

  /** A request has arrived. @returns whether it may abort generations: its end is to be reported */
  began(x: Exchange): boolean {
    if (x.isGeneration || !paths.test(x.path)) return false;
    x.setState(this.#open, true);
    this.#inFlight++;
    return true;
  }

  finished(x: Exchange, nowMs: number): void {
    if (x.state(this.#open) === null) return;
    this.#inFlight--;
    this.#untilMs = nowMs + LINGER_MS;
  }

  mayBeAt(nowMs: number): boolean {
    return this.#inFlight > 0 || nowMs <= this.#untilMs;
  }
}
