import type { PlacedRequest } from '../../placed-request.ts';
import type { Worker } from '../../fleet/worker.ts';
import { IndexedSet } from '../../kit/indexed-set.ts';
import type { OpenSession } from './open-sessions.ts';

/**
 * How fast an engine works; times in seconds.
 *
 * One step of continuous batching takes `step + sequence·n + kvToken·k` for n sequences with k tokens of context in
 * total; a prompt token at position p takes `prefillToken + prefillPosition·p` more.
 */
interface Speed {
  readonly step: number;
  readonly sequence: number;
  readonly kvToken: number;
  readonly prefillToken: number;
  readonly prefillPosition: number;
}

/**
 * The default: Qwen2.5-7B in bf16 on one H100. 15.2 GB of weights per step at 2.6 TB/s; 57,344 B of KV per token at 2.4
 * TB/s; 15.2 GFLOP per prompt token at half of 989 TFLOPS. The ranking is the same if the whole fleet is faster or
 * slower.
 */
export const defaultSpeed: Speed = {
  step: 7e-3,
  sequence: 30e-6,
  kvToken: 24e-9,
  prefillToken: 31e-6,
  prefillPosition: 1e-9,
};

/** Tokens of context that an engine holds if it does not report them, and sequences that it decodes at once. */
export const DEFAULT_KV_TOKENS = 450_000;
export const MAX_SEQUENCES = 256;

export const prefillSecs = (speed: Speed, from: number, tokens: number): number =>
  tokens * (speed.prefillToken + speed.prefillPosition * (from + tokens / 2));

export const stepSecs = (speed: Speed, sequences: number, kvTokens: number): number =>
  speed.step + speed.sequence * sequences + speed.kvToken * kvTokens;

/** How far an observation below the estimate, or above it, moves the estimate: it settles near the lowest tenth. */
const DOWN = 0.05;
const UP = 0.005;

/** Observations of one engine before its own estimate replaces that of the fleet. */
const OWN_TIMES = 64;

/**
 * How many times slower than `defaultSpeed` an engine or a fleet is, from observed times. Queues and other requests
 * only ever add to a time, so the estimate follows the short ones.
 */
export class Slowness {
  prefill = 1;
  decode = 1;
  /** Observations of either kind. */
  seen = 0;
  /** `defaultSpeed`, slowed down by these factors. */
  speed = defaultSpeed;

  /** Seconds that it took to read a prompt, and that `defaultSpeed` would have taken. */
  sawPrefill(seconds: number, expected: number): void {
    this.prefill = follow(this.prefill, seconds / expected);
    this.#changed();
  }

  sawDecode(seconds: number, expected: number): void {
    this.decode = follow(this.decode, seconds / expected);
    this.#changed();
  }

  get isKnown(): boolean {
    return this.seen >= OWN_TIMES;
  }

  #changed(): void {
    const { prefill, decode } = this;
    this.seen++;
    this.speed = {
      step: defaultSpeed.step * decode,
      sequence: defaultSpeed.sequence * decode,
      kvToken: defaultSpeed.kvToken * decode,
      prefillToken: defaultSpeed.prefillToken * prefill,
      prefillPosition: defaultSpeed.prefillPosition * prefill,
    };
  }
}

function follow(estimate: number, seen: number): number {
  if (!Number.isFinite(seen)) return estimate;
  const bounded = Math.min(100, Math.max(0.01, seen));
  return estimate + (bounded < estimate ? DOWN : UP) * (bounded - estimate);
}

/** What one worker does and holds, as far as a router can know it. */
export class WorkerState {
  readonly worker: Worker;
  readonly #own = new Slowness();
  readonly #fleet: Slowness;
  /** The worker is no longer in the fleet. */
  hasLeft = false;
  /** When the prompts that were sent will have been read, by their lengths (monotonic ms). */
  queueEndMs = 0;
  /** Requests in flight that this policy placed. */
  sequences = 0;
  /** Tokens of context that those are expected to hold: their prompts and half of their responses. */
  kvTokens = 0;
  /** The open sessions whose home this is. */
  readonly residents = new IndexedSet<OpenSession>();
  /** Tokens of their contexts in total; what they share with others counts once. */
  residentTokens = 0;
  /** Called when those have changed; null: not needed. */
  onResidents: ((state: WorkerState) => void) | null = null;
  /** Guests of the requests in flight (see `RolloutRequest.isGuest`), and their part of `kvTokens`. */
  guests = 0;
  guestTokens = 0;

  constructor(worker: Worker, fleet: Slowness) {
    this.worker = worker;
    this.#fleet = fleet;
  }

  /** Tokens of context that the engine can hold. */
  get capacityTokens(): number {
    return this.worker.kvTokens ?? DEFAULT_KV_TOKENS;
  }

  /**
   * The worker's own slowness once it is known, before that the fleet's: otherwise unmeasured workers would look better
   * than measured ones.
   */
  get slowness(): Slowness {
    return this.#own.isKnown ? this.#own : this.#fleet;
  }

  get speed(): Speed {
    return this.slowness.speed;
  }

  /** Seconds that it took to read a prompt, and that `defaultSpeed` would have taken. */
  sawPrefill(seconds: number, expected: number): void {
    this.#own.sawPrefill(seconds, expected);
    this.#fleet.sawPrefill(seconds, expected);
  }

  sawDecode(seconds: number, expected: number): void {
    this.#own.sawDecode(seconds, expected);
    this.#fleet.sawDecode(seconds, expected);
  }
}

/** Work of fewer tokens says nothing about speed. */
const MIN_TOKENS_TIMED = 64;

/** What was expected of a request when it was placed. */
interface Timed {
  readonly beginMs: number;
  readonly prefillSecs: number;
  readonly queueSecs: number;
}

/** The engine has responded: what its times say about its speed. */
export function learnSpeed(x: PlacedRequest, request: Timed, state: WorkerState, answerTokens: number): void {
  const beganMs = x.firstTokenMs ?? x.firstByteMs;
  // The rest of a continued response came in the middle of it.
  if (beganMs === null || beganMs < request.beginMs) return;
  const firstMs = beganMs - request.beginMs;
  const streamMs = x.endMs! - beganMs;
  // A response in one piece does not show when its prompt was read.
  if (streamMs < firstMs / 20) return;
  const expected = request.prefillSecs / state.slowness.prefill;
  if (request.queueSecs === 0 && expected > MIN_TOKENS_TIMED * defaultSpeed.prefillToken) {
    state.sawPrefill(firstMs / 1000, expected);
  }
  const steps = answerTokens - 1;
  if (steps < MIN_TOKENS_TIMED) return;
  state.sawDecode(streamMs / 1000, steps * stepSecs(defaultSpeed, state.sequences + 1, state.kvTokens));
}
