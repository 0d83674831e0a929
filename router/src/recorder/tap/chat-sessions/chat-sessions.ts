import type { Exchange } from '../../../exchange.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { copied } from '../../../kit/copy-slices.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { Logger } from '../../../observe/log.ts';
import { type PluginAnswer, type PluginPhases, Refused, type ValueCutter, type ValueTaker } from '../../../plugin.ts';
import { after } from '../../../threads/worker-thread.ts';
import { Capture, MAX_BODY_BYTES } from '../capture.ts';
import type { Asked, ClientCopy } from '../../../engines/dialects/chat-copy.ts';
import { expertsAside } from '../experts-tap.ts';
import type { Equality } from '../../thread/chat/equality.ts';
import type { RequestDefaults } from '../../thread/chat/request-defaults.ts';
import type { SampleEnds } from '../../thread/chat/sample-ends.ts';
import { noSuchSession } from '../../shared/session-id.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import type { Recorder } from '../recorder.ts';
import type { ResponseHead } from '../../../wire/response-head.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import { inSession, isChat, keyOf } from './chat-exchange.ts';
import { type ChatState, ChatStrategy } from './chat-strategy.ts';

export interface ChatSessionsOptions {
  readonly equality: Equality;
  readonly forward: 'ids' | 'messages';
  readonly engine: 'auto' | 'sglang' | 'vllm';
  readonly verify: boolean;
  readonly request: RequestDefaults;
  readonly samples: SampleEnds;
}

/** What a session looks at, beside its plugin's options. */
export interface ChatSurroundings {
  readonly recorder: Recorder;
  readonly tokenizerCheck: TokenizerCheck;
  /** Plain chats that carry a session key are sessions too (`--capture-chat`). */
  readonly captureChat: boolean;
  readonly log: Logger;
}

/** What a thread needs of a chat: plain data. */
const askedOf = ({ opened }: ChatState): Asked => ({ form: opened!.form, requested: opened!.requested });

/** Chats in sessions: engines get the ids of all that was said before, clients get what a plain call would have given them. */
export class ChatSessions implements PluginPhases {
  readonly capture: Capture<ChatState>;
  readonly strategy: ChatStrategy;
  readonly #captureChat: boolean;
  readonly #thread: RecorderThread;

  constructor(options: ChatSessionsOptions, around: ChatSurroundings) {
    this.strategy = new ChatStrategy(options, around);
    this.capture = new Capture(around.recorder, this.strategy);
    this.#captureChat = around.captureChat;
    this.#thread = around.recorder.thread;
  }

  retarget(x: Exchange): void {
    const found = inSession(x.head.target);
    if (found === null) return;
    const { session, target } = found;
    x.setState(this.strategy.inPath, session);
    x.head.target = target;
    x.key = { kind: 'session', value: session, source: 'path' };
  }

  appliesTo(x: Exchange): boolean {
    return this.#isInPath(x) || (isChat(x) && this.mayBeInSession(x));
  }

  /** Known when the head is there: its body may have the key of a session. */
  mayBeInSession(x: Exchange): boolean {
    return this.#isInPath(x) || this.#captureChat;
  }

  /** Whether it is a call of a session: by its path, or with `--capture-chat` by its key. One in the body is known when a worker is chosen. */
  isInSession(x: Exchange): boolean {
    return this.#isInPath(x) || (this.#captureChat && this.strategy.sessionOf(x) !== '');
  }

  async admit(x: Exchange): Promise<null> {
    // Other paths are forwarded without a check of the session, as by miles' session server.
    if (!this.#isInPath(x) || !isChat(x)) return null;
    const session = this.strategy.sessionOf(x);
    const isKnown = await this.#thread.ask('chatKnown', { session, tenant: x.tenant });
    if (isKnown) return null;
    throw new Refused(new RouterError('session_not_found', noSuchSession(session)));
  }

  /** A call that is repeated with its id, as its answer got lost: it gets that answer. */
  async answer(x: Exchange): Promise<PluginAnswer | null> {
    const key = keyOf(x);
    if (key === '' || !isChat(x) || !this.isInSession(x)) return null;
    await new Promise<void>((resolve) => x.body.whenComplete(() => resolve()));
    if (x.body.bytes > MAX_BODY_BYTES) return null;
    const joined = await new Promise<Buffer>((resolve) => x.body.whenJoined(resolve));
    const body = await copied(joined);
    const { id } = this.capture.begin(x);
    const call = { id, session: this.strategy.sessionOf(x), tenant: x.tenant, key, body };
    // A thread that has ended has said so, and knows of no repeated call.
    const known = await this.#thread.ask('chatRepeat', call, [body.buffer]).catch(() => null);
    if (known === null) {
      // The client disconnected in the meantime: nothing else would close the call.
      if (x.outcome !== null) this.#thread.tell('captureDropped', { kind: 'chat', id });
      return null;
    }
    if (known.problem !== null) return { status: 409, contentType: 'application/json', body: errorOf(known.problem) };
    const { body: kept, isStream } = known;
    const again = bufferOf(kept);
    return { status: 200, contentType: isStream ? 'text/event-stream' : 'application/json', body: again };
  }

  requestBody(x: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    return isChat(x) && this.isInSession(x) ? this.capture.requestBody(x, body, worker) : body;
  }

  cutValues(x: Exchange, head: ResponseHead, taker: ValueTaker): ValueCutter | null {
    return this.capture.capturedOf(x, head.status) === null ? null : expertsAside(taker);
  }

  async beforeValue(x: Exchange, beginning: Buffer): Promise<Buffer> {
    const state = this.capture.stateOf(x)!;
    const { isStream } = state.answer!.tap;
    const made = await this.#thread.runOnCopy('clientBeginning', beginning, isStream, askedOf(state), state.begun);
    state.begun = made.begun;
    return made.bytes;
  }

  responseEvent(x: Exchange, event: Buffer): Buffer | Promise<Buffer> {
    const state = this.capture.capturedOf(x, x.status);
    if (state === null) return event;
    return after(this.#thread.runOnCopy('clientEvent', event, askedOf(state), state.begun), ({ bytes, begun }) => {
      state.begun = begun;
      return bytes;
    });
  }

  responseBody(x: Exchange, body: Buffer): Buffer | Promise<Buffer> {
    const state = this.capture.capturedOf(x, x.status);
    if (state === null) return body;
    return after(this.#thread.runOnCopy('clientCopy', body, askedOf(state)), (made) => this.#checked(x, made));
  }

  #checked(x: Exchange, { bytes, hasIds }: ClientCopy): Buffer {
    if (hasIds || !this.#isInPath(x)) return bytes;
    const message =
      'The response of the engine has no token ids: the engine is too old, or another router in front of it removes fields of the request.';
    throw new Refused(new RouterError('upstream_bad_answer', message));
  }

  #isInPath(x: Exchange): boolean {
    return x.state(this.strategy.inPath) !== null;
  }
}

const errorOf = (message: string): Buffer =>
  Buffer.from(JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: 'conflict' } }));
