import {
  type EngineRequest,
  type RequestedFields,
  engineRequest,
  requestedFields,
} from '../../../engines/dialects/chat.ts';
import type { EngineKind } from '../../../engines/engine.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { type ChatRequest, readChatRequest } from '../../shared/chat-request.ts';
import { noSuchSession } from '../../shared/session-id.ts';
import type { ChatName, Turn } from '../../shared/turn.ts';
import type { ExpertsFiles } from '../capture/experts-files.ts';
import { Captures, type EndedResponse, type OpenCapture, areLate, unanswered } from '../captures.ts';
import type { HeapLimits } from '../heap-limits.ts';
import { EncodingRefused, type Refusal } from '../tokens/in-lanes.ts';
import type { ChatSession, OpenTurn } from './chat-session.ts';
import type { Chats } from './chats.ts';
import { keepAnswer } from './keep-answer.ts';
import { type Repeatable, clientsAnswer, newCall } from './repeats.ts';
import { type RequestDefaults, withDefaults } from './request-defaults.ts';

/** A chat request that is about to be sent to an engine. */
export interface ChatOpenCall extends ChatName {
  /** Chosen by the caller. */
  readonly id: number;
  /** null: it is known already, and sent to another engine. */
  readonly body: Uint8Array | null;
  readonly engine: EngineKind;
  /** 0: not known. */
  readonly maxModelLen: number;
  readonly takesIds: boolean;
  /** The key with which the client repeats the call if its response is lost; ''. */
  readonly key: string;
  /** The request is for an existing session: one that is over is not created again. */
  readonly isInPath: boolean;
}

export type ChatOpened =
  | {
      readonly body: Uint8Array;
      readonly path: string;
      readonly form: EngineRequest['form'];
      readonly isStream: boolean;
      /** How many the request asks for. */
      readonly choices: number;
      readonly requested: RequestedFields;
      readonly problem: null;
    }
  | ChatProblem;

interface ChatProblem {
  readonly problem: string;
  /** Left out: `bad_request`. */
  readonly code?: 'session_not_found' | Refusal['code'];
}

/** A call that may be a repetition. */
export interface ChatRepeatCall extends ChatName {
  /** As that of `ChatOpenCall`. */
  readonly id: number;
  readonly key: string;
  readonly body: Uint8Array;
}

export type ChatRepeated =
  | { readonly body: Uint8Array; readonly isStream: boolean; readonly problem: null }
  | { readonly problem: string }
  | null;

/** A call in flight: a repetition of it gets an error. */
interface Claim {
  readonly chat: ChatSession;
  readonly key: string;
  readonly call: Repeatable;
}

/** A chat whose response is incomplete. */
export interface OpenChat extends Claim, OpenCapture {
  readonly turn: OpenTurn;
  isExact: boolean;
  readonly hidesExperts: boolean;
  readonly choices: number;
  /** Made of the response so far, by the numbers of their choices. */
  readonly turns: Map<number, Turn>;
}

const choicesOf = ({ fields }: ChatRequest): number => (typeof fields.n === 'number' && fields.n > 0 ? fields.n : 1);

/** Chats: their turns are in the trees of their sessions. */
export class ChatCaptures extends Captures<OpenChat> {
  /** Turns; those whose prompt is no continuation of the record, that engines rendered themselves, whose streams were truncated. */
  readonly stats = { turns: 0, drifted: 0, observed: 0, torn: 0 };
  /** Members that a chat has where its client leaves them out. */
  defaults: RequestDefaults = {};
  readonly #chats: () => Chats;
  readonly #heap: HeapLimits;
  /** Calls with a key that have no engine yet. */
  readonly #claims = new Map<number, Claim>();

  constructor(chats: () => Chats, files: ExpertsFiles | null, heap: HeapLimits) {
    super(files, false);
    this.#chats = chats;
    this.#heap = heap;
  }

  async begin({ id, engine, maxModelLen, takesIds, ...asked }: ChatOpenCall): Promise<ChatOpened> {
    let known = this.open.get(id);
    if (known === undefined) {
      const made = await this.#opened(id, asked);
      if ('problem' in made) return made;
      known = made;
      // The session stays in memory until the response has come.
      known.chat.open++;
      this.open.set(id, known);
    }
    const { request, promptIds } = known.turn;
    const { hidesExperts, choices } = known;
    const options = { maxModelLen, takesIds, hidesExperts, trimsStop: asked.isInPath };
    const { body, path, form, isExact } = engineRequest(engine, request, promptIds, options);
    known.isExact = isExact;
    const own = requestedFields(request);
    const requested = hidesExperts ? { ...own, return_routed_experts: false } : own;
    Object.assign(known.call, { form, requested });
    return { body: new Uint8Array(body), path, form, isStream: request.isStream, choices, requested, problem: null };
  }

  async #opened(
    id: number,
    { session, tenant, body, key, isInPath }: Pick<ChatOpenCall, 'session' | 'tenant' | 'body' | 'key' | 'isInPath'>,
  ): Promise<OpenChat | ChatProblem> {
    const chats = this.#chats();
    const refusal = this.#heap.refusal();
    if (refusal !== null) return { problem: refusal.message, code: refusal.code };
    const completed = withDefaults(bufferOf(body!), this.defaults);
    const hidesExperts = completed.added.includes('return_routed_experts');
    const request = readChatRequest(completed.body);
    if (typeof request === 'string') return { problem: request };
    if (!isInPath) chats.begin(session, tenant);
    else if (chats.isRemoved(session, tenant)) return { problem: noSuchSession(session), code: 'session_not_found' };
    const claim = this.#takeClaim(id);
    const inFlight = await this.#waitForAnswers(request, { session, tenant });
    return chats.with(session, tenant, async (chat) => {
      const call = Object.assign(claim?.call ?? newCall(request.body), { isStream: request.isStream });
      try {
        const turn = await chat.ask(request, inFlight);
        chat.repeats.begin(key, call);
        const rest = { choices: choicesOf(request), turns: new Map<number, Turn>(), ...unanswered() };
        return { chat, turn, isExact: false, hidesExperts, key, call, ...rest };
      } catch (error) {
        chat.repeats.drop(key, call);
        if (error instanceof EncodingRefused) return { problem: error.message, code: error.code };
        // Usually raise_exception of the template, for a message that it does not support.
        return { problem: `The chat template refuses these messages: ${(error as Error).message}` };
      }
    });
  }

  /** The state of a call that may be a repetition; null: it is the first one, and in flight from now on. */
  repeated({ id, session, tenant, key, body }: ChatRepeatCall): Promise<ChatRepeated> {
    const { writer } = this.#chats();
    return this.#chats().with(session, tenant, async (chat): Promise<ChatRepeated> => {
      // As it would be recorded.
      const call = newCall(withDefaults(bufferOf(body), this.defaults).body);
      const known = chat.repeats.get(key);
      if (known?.digest === call.digest) {
        if (known.turn === null) return { problem: 'The first call with this id is still in flight.' };
        await writer.flush();
        const answer = (await writer.store.get(known.turn))?.answer ?? null;
        if (answer !== null)
          return { body: new Uint8Array(clientsAnswer(known, answer)), isStream: known.isStream, problem: null };
      }
      chat.repeats.begin(key, call);
      chat.open++;
      this.#claims.set(id, { chat, key, call });
      return null;
    });
  }

  override drop(id: number): void {
    const claim = this.#takeClaim(id);
    claim?.chat.repeats.drop(claim.key, claim.call);
    super.drop(id);
  }

  protected override async place(response: EndedResponse, known: OpenChat, answer: Buffer): Promise<void> {
    const chats = this.#chats();
    const { session, tenant } = known.chat;
    const parts = { pieces: chats.rules.tokenizer.pieces, writer: chats.writer, files: this.files, stats: this.stats };
    await chats.with(session, tenant, () => keepAnswer(response, known, answer, parts));
  }

  protected override leave({ chat }: OpenChat): void {
    chat.open--;
  }

  /** Not earlier: a repetition in between would find neither an answer nor a call in flight. */
  protected override close({ chat, key, call }: OpenChat): void {
    chat.repeats.drop(key, call);
  }

  #takeClaim(id: number): Claim | undefined {
    const claim = this.#claims.get(id);
    if (claim !== undefined) claim.chat.open--;
    this.#claims.delete(id);
    return claim;
  }

  /**
   * Waits for the responses in flight that the request continues. @returns how many of its messages end with the last of them that is still
   * in flight; 0: none is
   */
  async #waitForAnswers(request: ChatRequest, name: ChatName): Promise<number> {
    const left = new Set(this.#answersIn(request, name));
    await areLate(Array.from(left, (each) => each.over.promise.then(() => void left.delete(each))));
    return Math.max(0, ...Array.from(left, ({ turn }) => turn.request.messages.length + 1));
  }

  /** The calls of a session whose response the request has, or a part of it, while it is no turn yet. */
  #answersIn(request: ChatRequest, { session, tenant }: ChatName): OpenChat[] {
    let keys: readonly string[] | null = null;
    return [...this.open.values()].filter(({ chat, turn, turns, choices }) => {
      const { length } = turn.request.messages;
      const isBehind =
        chat.session === session && chat.tenant === tenant && request.messages[length]?.role === 'assistant';
      // Something comes after the answer.
      if (!isBehind || request.messages.length < length + 2 || turns.size >= choices) return false;
      const asked = (keys ??= chat.keysOf(request));
      return chat.keysOf(turn.request).every((key, i) => key === asked[i]);
    });
  }
}
