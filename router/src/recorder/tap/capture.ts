import type { Exchange, ResponseObserver } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { sessionOf } from '../../classify/routing-keys.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import { promptOnly } from '../../phases/prompt-only.ts';
import { type PluginPhases, Refused } from '../../plugin.ts';
import { after } from '../../threads/worker-thread.ts';
import type { Bracket } from '../../weights/version-brackets.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { CaptureKind } from '../thread/recorder-calls.ts';
import type { AnswerCapture } from './answer-capture.ts';
import { AnswerTap } from './answer-tap.ts';
import { factsOf } from './exchange-facts.ts';
import type { Recorder } from './recorder.ts';

/** Larger requests are not captured: copying them would block the event loop. */
export const MAX_BODY_BYTES = 33_554_432;

/** How a response is read. */
export interface Expected {
  /** How many samples were asked for. */
  readonly choices: number;
  /** Events may each have all so far: SGLang's own streams. */
  readonly mayBeCumulative: boolean;
  /** After the event that ends the last choice more may come that belongs to the record. */
  readonly hasMore: boolean;
  /** The engine may not name versions in it, so the engine is asked from the request on. */
  readonly isUnnamed: boolean;
}

/** The state of a captured exchange. */
export interface Captured {
  /** The number by which the recorder thread knows the request; 0: it gets the request together with the response. */
  id: number;
  /** null: the tokens of the request are not known, so its response is not captured. */
  expected: Expected | null;
  /** When its request came (Unix ms), for all parts of its response; null: none has ended. */
  startedAtMs: number | null;
  /** What was known of its engine's weights before that engine got it. */
  bracket: Bracket | null;
  answer: AnswerCapture | null;
  /** The request could not be captured, so its turn is missing in the record. */
  isMissed: boolean;
  /** Its tokens can't be known (an image): it has no turn, which is no failure. */
  isUnknown: boolean;
  /** Its turns, as far as they have ended, are with the thread. */
  recorded: Promise<unknown>;
}

export const notCaptured = (id: number): Captured => ({
  id,
  expected: null,
  startedAtMs: null,
  bracket: null,
  answer: null,
  isMissed: false,
  isUnknown: false,
  recorded: Promise.resolve(),
});

/** What differs between the kinds of requests. */
export interface CaptureStrategy<State extends Captured> {
  readonly kind: CaptureKind;
  /** The client gets the end of a response when its turns are stored, if the store outlives the router. */
  readonly holdsEnds: boolean;
  begin(x: Exchange): State;
  /** A request that is too large for `open`. Throws where it is refused. */
  tooLarge(x: Exchange, worker: Worker): void;
  /** Sets `state.expected`. @returns the body for the engine */
  open(x: Exchange, state: State, body: Buffer, worker: Worker): Buffer | Promise<Buffer>;
  /** The request, in memory of its own, if the thread gets it together with the response. */
  takeRequest(state: State): Uint8Array | null;
  /** Whether a response, or a part of it, that has come may lack versions. Left out: as expected. */
  isUnnamed?(x: Exchange, state: State, isStream: boolean): boolean;
  /** A response was not captured, by the word of the thread. @param problem null: it was */
  reported: ((problem: string | null, worker: string) => void) | null;
  /** A response was too large. */
  overflowed(x: Exchange): void;
}

/** Captures requests of one kind: opens them at the recorder thread, hands over their responses part by part, and says when there is none. */
export class Capture<State extends Captured> implements PluginPhases {
  /** Texts of megabytes, and many of them at once, wait for one thread. */
  readonly timeoutMs = 600_000;
  readonly #recorder: Recorder;
  readonly #strategy: CaptureStrategy<State>;
  readonly #states: StateKey<State> = {};

  constructor(recorder: Recorder, strategy: CaptureStrategy<State>) {
    this.#recorder = recorder;
    this.#strategy = strategy;
  }

  stateOf(x: Exchange): State | null {
    return x.state(this.#states);
  }

  /** The state of a response that is captured. */
  capturedOf(x: Exchange, status: number | null): State | null {
    const state = this.stateOf(x);
    return state === null || state.expected === null || status !== 200 ? null : state;
  }

  begin(x: Exchange): State {
    const state = this.stateOf(x) ?? this.#strategy.begin(x);
    x.setState(this.#states, state);
    return state;
  }

  requestBody(x: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    if (x.state(promptOnly) === true) return body;
    if (body.length > MAX_BODY_BYTES) {
      this.#strategy.tooLarge(x, worker);
      this.begin(x).isMissed = true;
      return body;
    }
    const { refusal } = this.#recorder;
    if (refusal !== null) throw new Refused(refusal);
    const state = this.begin(x);
    return after(this.#strategy.open(x, state, body, worker), (sent) => {
      this.#leaves(x, state, worker);
      return sent;
    });
  }

  /** The request goes to its engine now. */
  #leaves(x: Exchange, state: State, worker: Worker): void {
    // The client disconnected in the meantime: nothing else would close the capture.
    if (x.outcome !== null) return this.#drop(state);
    if (state.expected === null) return;
    x.refuseCompression();
    state.bracket = this.#recorder.versions.begin(x, worker, state.expected.isUnnamed, state.bracket);
  }

  observeResponse(x: Exchange, head: ResponseHead): ResponseObserver | null {
    const state = this.capturedOf(x, head.status);
    if (state === null) return null;
    const { choices, hasMore, mayBeCumulative } = state.expected!;
    const tap = new AnswerTap(head.isEventStream, choices === 1, mayBeCumulative);
    const handOver = (isLast: boolean): Promise<boolean> | null => this.#handOver(x, state, isLast);
    state.answer = this.#recorder.captureAnswer({ tap, choices, hasMore, handOver }, state.bracket);
    return state.answer;
  }

  /** Its turns, as far as they have ended, go to the thread. */
  #handOver(x: Exchange, state: State, isLast: boolean): Promise<boolean> | null {
    const { tap, expertsKey } = state.answer!;
    const { versions, thread, sessionHeaders, storesFirst } = this.#recorder;
    const { kind, holdsEnds, reported } = this.#strategy;
    const answer = tap.take(isLast);
    const request = this.#strategy.takeRequest(state);
    // The number connects the rest of the response with this request.
    if (!isLast && state.id === 0) state.id = thread.newId();
    const { isStream } = tap;
    const isUnnamed = this.#strategy.isUnnamed?.(x, state, isStream) ?? state.expected?.isUnnamed ?? true;
    const asked = versions.asked(state.bracket, isUnnamed);
    const own = factsOf(x, isStream, sessionHeaders);
    // Calculated once: the clock of dates has whole milliseconds, so a second result may be another millisecond.
    state.startedAtMs ??= own.startedAtMs;
    const facts = { ...own, startedAtMs: state.startedAtMs, asked };
    const isAwaited = holdsEnds && storesFirst;
    if (holdsEnds) this.#recorder.captured(x, !isStream || tap.finished >= state.expected!.choices);
    // The client gets the end of the last response when the end of the session is stored, too. A thread that is not prepared can't store it.
    const storesEnd = isLast && isAwaited && !this.#recorder.restarts.isAway;
    const sessionEnd = storesEnd ? this.#recorder.takeFirstEnd(x) : null;
    const ended = { kind, id: state.id, request, isStream, isLast, answer, expertsKey, facts, isAwaited, sessionEnd };
    const recorded = thread.captureEnded(ended, reported !== null);
    if (recorded === null) return null;
    state.recorded = recorded;
    if (sessionEnd !== null)
      this.#recorder.keepEnd(
        sessionEnd,
        recorded.then(({ isEnded }) => isEnded),
      );
    const stored = recorded.then(({ problem, isStored }) => {
      reported?.(problem, facts.worker);
      return isStored;
    });
    return isAwaited ? stored : null;
  }

  finished(x: Exchange): void {
    const state = this.stateOf(x);
    if (state === null) return;
    x.setState(this.#states, null);
    const { answer, isUnknown } = state;
    const { thread, sessionHeaders } = this.#recorder;
    const isTooLarge = answer?.tap.isTooLarge === true;
    const name = { session: sessionOf(x, sessionHeaders), tenant: x.tenant };
    if (x.status === 200 && (state.isMissed || isTooLarge)) thread.turnMissed(name);
    else if (x.status === 200 && isUnknown && this.#recorder.feed !== null) thread.tell('feedTurnLost', name);
    if (answer === null) return this.#drop(state);
    if (isTooLarge) this.#strategy.overflowed(x);
    if (!answer.end(x)) this.#drop(state);
    this.#recorder.versions.complete(x, state.bracket, state.recorded);
  }

  /** No response, or no further part of it, will be handed over. */
  #drop({ id, answer }: Captured): void {
    if (id > 0) this.#recorder.thread.tell('captureDropped', { kind: this.#strategy.kind, id });
    answer?.dropExperts();
  }
}
