import type { ResponseObserver, Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { copied } from '../../kit/copy-slices.ts';
import type { RouterError } from '../../kit/errors.ts';
import type { Logger } from '../../observe/log.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import { type Plugin, Refused } from '../../plugin.ts';
import { after } from '../../threads/worker-thread.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import { AnswerTap } from './answer-tap.ts';
import { MAX_BODY_BYTES, UncapturedLog, factsOf } from './exchange-facts.ts';
import { type RecorderThread, memoryOf } from './recorder-thread.ts';
import type { Bracket, VersionBrackets } from '../../weights/version-brackets.ts';
import { MESSAGES_PATH, RESPONSES_PATH } from '../../engines/dialects/calls.ts';

interface Following {
  readonly request: Uint8Array;
  /** The token ids in the engine's answer are for the record only: the client did not ask for them. */
  hidesIds: boolean;
  /** What was known of its engine's weights before that engine got it. */
  bracket: Bracket | null;
  tap: AnswerTap | null;
}

export interface RecorderParts {
  readonly thread: RecorderThread;
  readonly versions: VersionBrackets;
  /** The error for a request that must be recorded and cannot be now; null: continue. */
  readonly refusal: () => RouterError | null;
  readonly sessionHeaders: readonly string[];
  readonly log: Logger;
}

/** Which calls are recorded. */
type Takes = (x: Exchange) => boolean;

/** Records calls of `/v1/messages` and `/v1/responses`: with their token ids if the engine returns them, else as text. */
export class CallRecorder {
  readonly plugins: readonly Plugin[];
  readonly #parts: RecorderParts;
  readonly #takes: Takes[] = [];
  readonly #following: StateKey<Following> = {};
  readonly #uncaptured: UncapturedLog;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
    this.#uncaptured = new UncapturedLog(parts.log, 'a request was not captured');
    const phases = (path: string) => ({
      name: 'trajectories',
      appliesTo: (x: Exchange) => x.path === path && x.head.method === 'POST' && this.#takes.some((takes) => takes(x)),
      requestBody: (x: Exchange, body: Buffer, worker: Worker) => this.#requestBody(x, body, worker),
      observeResponse: (x: Exchange, head: ResponseHead) => this.#observeResponse(x, head),
      finished: (x: Exchange) => this.#finished(x),
      // Bodies of megabytes wait for the recorder thread.
      timeoutMs: 600_000,
    });
    const change = (x: Exchange, bytes: Buffer): Buffer | Promise<Buffer> => this.#clientCopy(x, bytes);
    this.plugins = [phases(MESSAGES_PATH), { ...phases(RESPONSES_PATH), responseEvent: change, responseBody: change }];
  }

  /** From now on the calls that `takes` names are recorded, too. */
  record(takes: Takes): void {
    this.#takes.push(takes);
  }

  async #requestBody(x: Exchange, body: Buffer, worker: Worker): Promise<Buffer> {
    const { refusal, thread } = this.#parts;
    const refused = refusal();
    if (refused !== null) throw new Refused(refused);
    if (body.length > MAX_BODY_BYTES) {
      this.#uncaptured.add(`a request may have ${MAX_BODY_BYTES} bytes`, worker.url);
      return body;
    }
    x.refuseCompression();
    const following = x.state(this.#following) ?? {
      request: await copied(body),
      hidesIds: false,
      bracket: null,
      tap: null,
    };
    following.hidesIds = false;
    x.setState(this.#following, following);
    following.bracket = this.#parts.versions.begin(x, worker, true, following.bracket);
    if (x.path !== RESPONSES_PATH || worker.engine !== 'vllm') return body;
    const asking = await Promise.resolve(thread.runOnCopy('askingForRawMessages', body)).catch(() => null);
    following.hidesIds = asking?.isOurs ?? false;
    return asking?.body ?? body;
  }

  #observeResponse(x: Exchange, head: ResponseHead): ResponseObserver | null {
    const following = x.state(this.#following);
    if (following === null || head.status !== 200) return null;
    following.tap = new AnswerTap(head.isEventStream, true, false);
    this.#parts.versions.follow(following.bracket, following.tap);
    return following.tap;
  }

  #clientCopy(x: Exchange, bytes: Buffer): Buffer | Promise<Buffer> {
    if (x.state(this.#following)?.hidesIds !== true || x.status !== 200) return bytes;
    return after(this.#parts.thread.runOnCopy('withoutRawMessages', bytes), (made) => made.bytes);
  }

  #finished(x: Exchange): void {
    const following = x.state(this.#following);
    x.setState(this.#following, null);
    const tap = following?.tap ?? null;
    if (following === null || tap === null) return;
    const { bracket } = following;
    const { versions } = this.#parts;
    versions.left(bracket);
    const worker = x.worker?.url ?? '';
    if (tap.isTooLarge) return this.#uncaptured.add('its answer is too large', worker);
    // The tokens of a truncated stream were sampled too.
    if (!tap.isStream && x.outcome !== 'complete') return;
    const facts = { ...factsOf(x, tap.isStream, this.#parts.sessionHeaders), asked: versions.asked(bracket, true) };
    const answer = tap.take();
    if (answer.length === 0) return;
    const { request } = following;
    const given = memoryOf([request, ...answer]);
    const ended = this.#parts.thread.ask('callEnded', { request, isStream: tap.isStream, answer, facts }, given);
    versions.complete(x, bracket, ended);
    ended.then(
      (problem) => this.#uncaptured.add(problem, worker),
      // The end of the thread is logged elsewhere.
      () => void this.#parts.thread.missed++,
    );
  }
}
