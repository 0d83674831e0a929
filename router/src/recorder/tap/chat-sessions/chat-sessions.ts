import { sessionOf } from '../../../classify/routing-keys.ts';
import type { EngineKind } from '../../../engines/engine.ts';
import type { ResponseObserver } from '../../../exchange.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { copied } from '../../../kit/copy-slices.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { Logger } from '../../../observe/log.ts';
import type { ExchangeView as Exchange, StateKey } from '../../../phases/exchange-view.ts';
import { type PluginAnswer, type PluginPhases, Refused, type ValueCutter, type ValueTaker } from '../../../plugin.ts';
import { after } from '../../../threads/worker-thread.ts';
import type { AnswerCapture } from '../answer-capture.ts';
import { AnswerTap, MAX_ANSWER_BYTES } from '../answer-tap.ts';
import { MAX_BODY_BYTES, UncapturedLog } from '../exchange-facts.ts';
import type { ChatOpened } from '../../thread/chat/chat-calls.ts';
import type { Asked, ClientCopy } from '../../../engines/dialects/chat-copy.ts';
import { expertsAside } from '../experts-tap.ts';
import type { Equality } from '../../thread/chat/equality.ts';
import type { RequestDefaults } from '../../thread/chat/request-defaults.ts';
import type { SampleEnds } from '../../thread/chat/sample-ends.ts';
import { noSuchSession } from '../../shared/session-id.ts';
import { type RecorderThread, memoryOf } from '../recorder-thread.ts';
import type { Recorder } from '../recorder.ts';
import { timesOf } from '../../shared/turn.ts';
import type { Bracket } from '../../../weights/version-brackets.ts';
import type { ResponseHead } from '../../../wire/response-head.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import { inSession, isChat, keyOf, maxModelLen } from './chat-exchange.ts';

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
  readonly sessionHeaders: readonly string[];
  readonly log: Logger;
}

/** What a thread needs of a chat: plain data. */
const askedOf = ({ form, requested }: Asked): Asked => ({ form, requested });

/** A chat in flight. */
interface Following {
  readonly id: number;
  isOpen: boolean;
  /** How the present engine got it. */
  opened: Extract<ChatOpened, { problem: null }> | null;
  /** Choices of its stream that have begun. */
  begun: readonly string[];
  /** What was known of its engine's weights before that engine got it. */
  bracket: Bracket | null;
  /** The answer does not name the weights. */
  isUnnamed: boolean;
  /** Its turns, as far as they have ended, are with the thread. */
  closed: Promise<unknown>;
  capture: AnswerCapture | null;
}

/** A chat that can't be put on record: in a session by path it is refused, any other one goes as it is. */
class NotForRecord extends Refused {}

/** Chats in sessions: engines get the ids of all that was said before, clients get what a plain call would have given them. */
export class ChatSessions implements PluginPhases {
  /** Chats that the thread, which counts, has nothing of: it takes no such request, answer or engine, or it has ended. */
  unkept = 0;
  readonly #options: ChatSessionsOptions;
  readonly #around: ChatSurroundings;
  readonly #thread: RecorderThread;
  /** Sessions by the path that was asked for. */
  readonly #inPath: StateKey<string> = {};
  readonly #following: StateKey<Following> = {};
  #nextId = 1;
  readonly #uncaptured: UncapturedLog;

  constructor(options: ChatSessionsOptions, around: ChatSurroundings) {
    this.#options = options;
    this.#around = around;
    this.#thread = around.recorder.thread;
    this.#uncaptured = new UncapturedLog(around.log, 'a response was not captured');
  }

  retarget(x: Exchange): void {
    const found = inSession(x.head.target);
    if (found === null) return;
    const { session, target } = found;
    x.setState(this.#inPath, session);
    x.head.target = target;
    x.key = { kind: 'session', value: session, source: 'path' };
  }

  appliesTo(x: Exchange): boolean {
    return x.state(this.#inPath) !== null || (isChat(x) && this.isInSession(x));
  }

  /** Whether it is a call of a session: by its path, or with `--capture-chat` by its key. */
  isInSession(x: Exchange): boolean {
    return x.state(this.#inPath) !== null || (this.#around.captureChat && this.#sessionOf(x) !== '');
  }

  async admit(x: Exchange): Promise<null> {
    const session = x.state(this.#inPath);
    // Other paths are forwarded without a check of the session, as by miles' session server.
    if (session === null || !isChat(x)) return null;
    const isKnown = await this.#thread.ask('chatKnown', { session, tenant: x.tenant });
    if (isKnown) return null;
    throw new Refused(new RouterError('session_not_found', noSuchSession(session)));
  }

  /** A call that is repeated with its id, as its answer got lost: it gets that answer. */
  async answer(x: Exchange): Promise<PluginAnswer | null> {
    const key = keyOf(x);
    if (key === '' || !isChat(x)) return null;
    await new Promise<void>((resolve) => x.body.whenComplete(() => resolve()));
    if (x.body.bytes > MAX_BODY_BYTES) return null;
    const { session, tenant } = { session: this.#sessionOf(x), tenant: x.tenant };
    const joined = await new Promise<Buffer>((resolve) => x.body.whenJoined(resolve));
    const body = await copied(joined);
    const following = this.#begin();
    const { id } = following;
    const call = { id, session, tenant, key, body };
    // A thread that has ended has said so, and knows of no repeated call.
    const known = await this.#thread.ask('chatRepeat', call, [body.buffer]).catch(() => null);
    if (known === null) {
      // The client disconnected in the meantime: nothing else would close the call.
      if (x.outcome !== null) this.#thread.tell('chatDrop', id);
      else x.setState(this.#following, following);
      return null;
    }
    if (known.problem !== null) return { status: 409, contentType: 'application/json', body: errorOf(known.problem) };
    const { body: kept, isStream } = known;
    const again = bufferOf(kept);
    return { status: 200, contentType: isStream ? 'text/event-stream' : 'application/json', body: again };
  }

  async requestBody(x: Exchange, body: Buffer, worker: Worker): Promise<Buffer> {
    if (!isChat(x)) return body;
    try {
      return await this.#bodyFor(x, body, worker);
    } catch (error) {
      const mustBeKept = x.state(this.#inPath) !== null || this.#around.recorder.isRequired;
      if (mustBeKept || (error instanceof Refused && !(error instanceof NotForRecord))) throw error;
      // Being captured is no reason for a plain chat to fail. Where the thread has ended it needs nothing of that either.
      const following = x.state(this.#following);
      if (following !== null) following.opened = null;
      this.#unkept((error as Error).message, worker.url);
      return body;
    }
  }

  async #bodyFor(x: Exchange, body: Buffer, worker: Worker): Promise<Buffer> {
    const { recorder, tokenizerCheck } = this.#around;
    const { refusal } = recorder;
    if (refusal !== null) throw new Refused(refusal);
    if (body.length > MAX_BODY_BYTES) {
      const message = `A chat request in a session may have at most ${MAX_BODY_BYTES} bytes.`;
      throw new NotForRecord(new RouterError('payload_too_large', message));
    }
    const engine = this.#kindOf(worker);
    if (this.#options.verify && this.#options.forward === 'ids') await tokenizerCheck.check(worker);
    // The client disconnected in the meantime: `finished` has run, and nothing else would remove the entry.
    if (x.outcome !== null) return body;
    let following = x.state(this.#following);
    if (following === null) {
      following = this.#begin();
      x.setState(this.#following, following);
    }
    const copy = following.isOpen ? null : await copied(body);
    const call = {
      id: following.id,
      session: this.#sessionOf(x),
      tenant: x.tenant,
      body: copy,
      engine,
      maxModelLen: maxModelLen(worker, x.model),
      takesIds: this.#options.forward === 'ids',
      key: keyOf(x),
      isInPath: x.state(this.#inPath) !== null,
    };
    const opened = await this.#thread.ask('chatOpen', call, copy === null ? [] : [copy.buffer]);
    // The client disconnected in the meantime: nothing else would close the call.
    if (x.outcome !== null) this.#thread.tell('chatDrop', following.id);
    if (opened.problem !== null) {
      throw new NotForRecord(new RouterError(opened.code ?? 'bad_request', opened.problem));
    }
    following.isOpen = true;
    following.opened = opened;
    // The rest of a stream goes on with the choices that have begun.
    if (x.seams.length === 0) following.begun = [];
    x.refuseCompression();
    const query = x.head.target.indexOf('?');
    x.engineTarget = query < 0 ? opened.path : opened.path + x.head.target.slice(query);
    // SGLang names versions in whole answers.
    following.isUnnamed = engine !== 'sglang' || opened.isStream;
    following.bracket = recorder.versions.begin(x, worker, following.isUnnamed, following.bracket);
    return bufferOf(opened.body);
  }

  observeResponse(x: Exchange, head: ResponseHead): ResponseObserver | null {
    const following = x.state(this.#following);
    if (following === null || following.opened === null || head.status !== 200) return null;
    const tap = new AnswerTap(head.isEventStream, true, false);
    const { choices } = following.opened;
    const handOver = (isLast: boolean): Promise<boolean> | null => this.#handOver(x, following, isLast);
    const parts = { tap, choices, hasMore: true, handOver };
    following.capture = this.#around.recorder.captureAnswer(parts, following.bracket);
    return following.capture;
  }

  /** Its turns, as far as they have ended, go to the thread. */
  #handOver(x: Exchange, following: Following, isLast: boolean): Promise<boolean> | null {
    const { id, capture, bracket, isUnnamed } = following;
    const { worker, group } = x;
    const { tap, expertsKey } = capture!;
    const facts = {
      group,
      worker: worker?.url ?? '',
      asked: this.#around.recorder.versions.asked(bracket, isUnnamed),
      ...timesOf(x, tap.isStream),
    };
    const answer = tap.take(isLast);
    const isAwaited = this.#around.recorder.storesFirst;
    const call = { id, isStream: tap.isStream, isLast, answer, facts, expertsKey, isAwaited };
    const closed = this.#thread.ask('chatClose', call, memoryOf(answer));
    following.closed = closed;
    const stored = closed.then(
      ({ problem, isStored }) => {
        this.#uncaptured.add(problem, facts.worker);
        return isStored;
      },
      () => {
        // A thread that has ended has said so itself.
        this.#thread.missed++;
        return false;
      },
    );
    return isAwaited ? stored : null;
  }

  cutValues(x: Exchange, head: ResponseHead, taker: ValueTaker): ValueCutter | null {
    const following = x.state(this.#following);
    return following === null || following.opened === null || head.status !== 200 ? null : expertsAside(taker);
  }

  async beforeValue(x: Exchange, beginning: Buffer): Promise<Buffer> {
    const following = x.state(this.#following)!;
    const { isStream } = following.capture!.tap;
    const asked = askedOf(following.opened!);
    const made = await this.#thread.runOnCopy('clientBeginning', beginning, isStream, asked, following.begun);
    following.begun = made.begun;
    return made.bytes;
  }

  responseEvent(x: Exchange, event: Buffer): Buffer | Promise<Buffer> {
    const following = x.state(this.#following);
    if (following === null || following.opened === null || x.status !== 200) return event;
    const made = this.#thread.runOnCopy('clientEvent', event, askedOf(following.opened), following.begun);
    return after(made, ({ bytes, begun }) => {
      following.begun = begun;
      return bytes;
    });
  }

  responseBody(x: Exchange, body: Buffer): Buffer | Promise<Buffer> {
    const opened = x.state(this.#following)?.opened ?? null;
    if (opened === null || x.status !== 200) return body;
    return after(this.#thread.runOnCopy('clientCopy', body, askedOf(opened)), (made) => this.#checked(x, made));
  }

  #begin(): Following {
    return {
      id: this.#nextId++,
      isOpen: false,
      opened: null,
      begun: [],
      bracket: null,
      isUnnamed: false,
      closed: Promise.resolve(),
      capture: null,
    };
  }

  #checked(x: Exchange, { bytes, hasIds }: ClientCopy): Buffer {
    if (hasIds || x.state(this.#inPath) === null) return bytes;
    const message =
      'The response of the engine has no token ids: the engine is too old, or another router in front of it removes fields of the request.';
    throw new Refused(new RouterError('upstream_bad_answer', message));
  }

  finished(x: Exchange): void {
    const following = x.state(this.#following);
    if (following === null) return;
    x.setState(this.#following, null);
    const { id, capture } = following;
    if (capture !== null) {
      const { tap } = capture;
      if (tap.isTooLarge) this.#unkept(`it has more than ${MAX_ANSWER_BYTES} bytes`, x.worker?.url ?? '');
      const isHandedOver = capture.end(x);
      this.#around.recorder.versions.complete(x, following.bracket, following.closed);
      if (isHandedOver) return;
    }
    this.#thread.tell('chatDrop', id);
    capture?.dropExperts();
  }

  #unkept(problem: string, worker: string): void {
    this.unkept++;
    this.#uncaptured.add(problem, worker);
  }

  /** The dialect of the worker's engine. Throws while it is not known. */
  #kindOf({ engine }: Worker): EngineKind {
    const { engine: said } = this.#options;
    if (said !== 'auto') return said;
    if (engine === 'openai') {
      const message = 'The worker is neither SGLang nor vLLM, so it accepts no token ids.';
      throw new NotForRecord(new RouterError('no_available_workers', message));
    }
    if (engine !== null) return engine;
    const message =
      'The engine kind of the worker is not known before its first good health check. Retry, or set the option "engine" of chat-sessions.';
    throw new Refused(new RouterError('no_available_workers', message));
  }

  #sessionOf(x: Exchange): string {
    return x.state(this.#inPath) ?? sessionOf(x, this.#around.sessionHeaders);
  }
}

const errorOf = (message: string): Buffer =>
  Buffer.from(JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: 'conflict' } }));
