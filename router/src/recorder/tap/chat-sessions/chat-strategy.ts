import type { Exchange } from '../../../exchange.ts';
import { sessionOf } from '../../../classify/routing-keys.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { copied } from '../../../kit/copy-slices.ts';
import type { StateKey } from '../../../phases/exchange-view.ts';
import { Refused } from '../../../plugin.ts';
import type { ChatOpened } from '../../shared/chat-call-types.ts';
import { MAX_ANSWER_BYTES } from '../answer-tap.ts';
import { type CaptureStrategy, type Captured, MAX_BODY_BYTES, notCaptured } from '../capture.ts';
import { UncapturedLog } from '../exchange-facts.ts';
import type { ChatSurroundings, ChatSessionsOptions } from './chat-sessions.ts';
import { NotForRecord, keyOf, kindOf, maxModelLen, refusal, withPath } from './chat-exchange.ts';

export interface ChatState extends Captured {
  isOpen: boolean;
  /** How the present engine got it. */
  opened: Extract<ChatOpened, { problem: null }> | null;
  /** Choices of its stream that have begun. */
  begun: readonly string[];
}

/** Chats of sessions: engines get the ids of all that was said before. */
export class ChatStrategy implements CaptureStrategy<ChatState> {
  readonly kind = 'chat';
  readonly holdsEnds = true;
  readonly reported: (problem: string | null, worker: string) => void;
  /** Chats that the thread, which counts, has nothing of: it takes no such request, response or engine, or it has ended. */
  unkept = 0;
  /** Sessions by the path that was asked for. */
  readonly inPath: StateKey<string> = {};
  readonly #options: ChatSessionsOptions;
  readonly #around: ChatSurroundings;

  constructor(options: ChatSessionsOptions, around: ChatSurroundings) {
    this.#options = options;
    this.#around = around;
    const uncaptured = new UncapturedLog(around.log, 'a response was not captured');
    this.reported = (problem, worker) => uncaptured.add(problem, worker);
  }

  sessionOf(x: Exchange): string {
    return x.state(this.inPath) ?? sessionOf(x, this.#around.recorder.sessionHeaders);
  }

  begin(): ChatState {
    return { ...notCaptured(this.#around.recorder.thread.newId()), isOpen: false, opened: null, begun: [] };
  }

  tooLarge(x: Exchange, worker: Worker): void {
    const message = `A chat request in a session may have at most ${MAX_BODY_BYTES} bytes.`;
    this.#fails(x, worker, refusal('payload_too_large', message));
  }

  overflowed(x: Exchange): void {
    this.#unkept(`it has more than ${MAX_ANSWER_BYTES} bytes`, x.worker?.url ?? '');
  }

  async open(x: Exchange, state: ChatState, body: Buffer, worker: Worker): Promise<Buffer> {
    try {
      const sent = await this.#opened(x, state, body, worker);
      state.isMissed = false;
      return sent;
    } catch (error) {
      this.#fails(x, worker, error);
      state.isMissed = true;
      state.opened = null;
      state.expected = null;
      return body;
    }
  }

  takeRequest(): null {
    return null;
  }

  async #opened(x: Exchange, state: ChatState, body: Buffer, worker: Worker): Promise<Buffer> {
    const { recorder, tokenizerCheck } = this.#around;
    const engine = kindOf(worker, this.#options.engine);
    const takesIds = this.#options.forward === 'ids';
    if (this.#options.verify && takesIds) await tokenizerCheck.check(worker);
    if (x.outcome !== null) return body;
    const copy = state.isOpen ? null : await copied(body);
    const call = {
      id: state.id,
      session: this.sessionOf(x),
      tenant: x.tenant,
      body: copy,
      engine,
      maxModelLen: maxModelLen(worker, x.model),
      takesIds,
      key: keyOf(x),
      isInPath: x.state(this.inPath) !== null,
    };
    const opened = await recorder.thread.ask('chatOpen', call, copy === null ? [] : [copy.buffer]);
    if (opened.problem !== null) throw refusal(opened.code ?? 'bad_request', opened.problem);
    state.isOpen = true;
    state.opened = opened;
    // SGLang names versions in whole responses. Beside routed experts it names them once, which is for the first choice alone.
    const isUnnamed = engine !== 'sglang' || opened.isStream || opened.choices > 1;
    state.expected = { choices: opened.choices, mayBeCumulative: false, hasMore: true, isUnnamed };
    // The rest of a stream goes on with the choices that have begun.
    if (x.seams.length === 0) state.begun = [];
    x.engineTarget = withPath(x.head.target, opened.path);
    return bufferOf(opened.body);
  }

  /** Throws the error where the chat has to be captured, and where the failure is not that it can't be. */
  #fails(x: Exchange, worker: Worker, error: unknown): void {
    const mustBeKept = x.state(this.inPath) !== null || this.#around.recorder.isRequired;
    if (mustBeKept || (error instanceof Refused && !(error instanceof NotForRecord))) throw error;
    // Being captured is no reason for a plain chat to fail. Where the thread has ended it needs nothing of that either.
    this.#unkept((error as Error).message, worker.url);
  }

  #unkept(problem: string, worker: string): void {
    this.unkept++;
    this.reported(problem, worker);
  }
}
