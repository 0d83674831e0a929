import type { EngineKind } from '../../../engines/engine.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import type { ExpertsFiles } from '../capture/experts-files.ts';
import { turnsOf } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';
import type { ChatName, SessionName, Turn } from '../../shared/turn.ts';
import { noProgress, walk } from '../export/walk.ts';
import { HeapLimits } from '../heap-limits.ts';
import { EncodingRefused, type Refusal } from '../tokens/in-lanes.ts';
import { defaultMemoryBytes } from '../../shared/memory-limit.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { type ChatRequest, readChatRequest } from '../../shared/chat-request.ts';
import { loadChatTemplate } from './chat-template.ts';
import { waitForAnswers } from './open-answers.ts';
import { Chats } from './chats.ts';
import {
  type EngineRequest,
  type RequestedFields,
  engineRequest,
  requestedFields,
} from '../../../engines/dialects/chat.ts';
import type { Equality } from './equality.ts';
import { type ChatCloseCall, type ChatStats, type Claim, type OpenChat, keepAnswer } from './keep-answer.ts';
import { clientsAnswer, newCall } from './repeats.ts';
import { sessionMetadata, sessionRecords } from './records.ts';
import { type RequestDefaults, withDefaults } from './request-defaults.ts';
import { noSuchSession } from '../../shared/session-id.ts';
import { ExpertsReader } from './experts-rows.ts';
import { type SampleEnds, endsOf } from './sample-ends.ts';
import { type SamplesWish, encodeSamples } from './samples.ts';

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

export interface ChatClosed {
  /** Why its tokens could not be read; '': they could. */
  readonly problem: string;
  /** If it is awaited: its turns are in the store, or there are none. */
  readonly isStored: boolean;
}

/** Options of chats. */
export interface ChatOptions {
  readonly equality: Equality;
  readonly request: RequestDefaults;
  readonly samples: SampleEnds;
  /** The thread was started again: any session may have lost turns. */
  readonly isAgain?: boolean;
}

/** What the chats of the recorder thread work on. */
export interface ChatParts {
  /** null: it is not loaded. */
  readonly tokenizer: () => Tokenizer | null;
  readonly tokenizerPath: string | null;
  readonly dataDir: string | null;
  readonly writer: TurnWriter;
  /** Memory limit of sessions without requests in flight; left out: `defaultMemoryBytes`. */
  readonly memoryBytes?: number;
  readonly heap?: HeapLimits;
  /** null: routed experts are not kept. */
  readonly files: ExpertsFiles | null;
  /** Removes the turns of a session with their files. */
  readonly removeStored: (name: SessionName) => Promise<number>;
}

const NOTHING = Buffer.alloc(0);
const UNKNOWN = 'its request is not known: the recorder thread was started again meanwhile';

const choicesOf = ({ fields }: ChatRequest): number => (typeof fields.n === 'number' && fields.n > 0 ? fields.n : 1);

/** Calls of the recorder thread about chats. */
export function chatCalls({
  tokenizer,
  tokenizerPath,
  dataDir,
  writer,
  memoryBytes = defaultMemoryBytes(),
  heap = new HeapLimits(),
  files,
  removeStored,
}: ChatParts) {
  const open = new Map<number, OpenChat>();
  /** Calls with a key that have no engine yet. */
  const claims = new Map<number, Claim>();
  /** Responses of which turns are being made. */
  const closing = new Set<Promise<unknown>>();
  const stats: ChatStats = { turns: 0, drifted: 0, observed: 0, torn: 0, uncaptured: 0, unread: 0 };
  let chats: Chats | null = null;
  let experts: ExpertsReader | null = null;
  let defaults: RequestDefaults = {};
  let ends: SampleEnds = 'ends';
  const begun = (): Chats => {
    if (chats === null) throw new Error('chat sessions are not on');
    return chats;
  };

  const release = <C extends Claim>(held: Map<number, C>, id: number): C | undefined => {
    const known = held.get(id);
    if (!held.delete(id)) return undefined;
    // It stayed in memory until now.
    known!.chat.open--;
    return known;
  };

  return {
    /** Enables chat sessions, once the tokenizer is loaded; rejects with a message for the user if there is no chat template. */
    chatBegin({ equality, request, samples, isAgain = false }: ChatOptions): void {
      const loaded = tokenizer();
      if (loaded === null || tokenizerPath === null) throw new Error('the tokenizer is not loaded');
      experts = dataDir === null ? null : new ExpertsReader(dataDir, tokenizerPath);
      defaults = request;
      ends = samples;
      chats = new Chats(
        { tokenizer: loaded, template: loadChatTemplate(tokenizerPath), equality },
        writer,
        heap.chatBytes(memoryBytes),
      );
      if (isAgain) chats.mayHaveLost();
    },

    chatKnown: ({ session, tenant }: ChatName): Promise<boolean> => begun().has(session, tenant),

    async chatOpen({
      id,
      session,
      tenant,
      body,
      engine,
      maxModelLen,
      takesIds,
      key,
      isInPath,
    }: ChatOpenCall): Promise<ChatOpened> {
      let known = open.get(id);
      if (known === undefined) {
        const refusal = heap.refusal();
        if (refusal !== null) return { problem: refusal.message, code: refusal.code };
        const completed = withDefaults(bufferOf(body!), defaults);
        const hidesExperts = completed.added.includes('return_routed_experts');
        const request = readChatRequest(completed.body);
        if (typeof request === 'string') return { problem: request };
        if (!isInPath) begun().begin(session, tenant);
        else if (begun().isRemoved(session, tenant))
          return { problem: noSuchSession(session), code: 'session_not_found' };
        const claim = release(claims, id);
        const inFlight = await waitForAnswers(request, { session, tenant }, open);
        const made = await begun().with(session, tenant, async (chat): Promise<OpenChat | ChatProblem> => {
          const call = Object.assign(claim?.call ?? newCall(request.body), { isStream: request.isStream });
          try {
            const turn = await chat.ask(request, inFlight);
            chat.repeats.begin(key, call);
            const rest = {
              choices: choicesOf(request),
              before: NOTHING,
              turns: new Map<number, Turn>(),
              over: Promise.withResolvers<void>(),
            };
            return { chat, turn, isExact: false, hidesExperts, key, call, ...rest };
          } catch (error) {
            chat.repeats.drop(key, call);
            if (error instanceof EncodingRefused) return { problem: error.message, code: error.code };
            // Usually raise_exception of the template, for a message that it does not support.
            return { problem: `The chat template refuses these messages: ${(error as Error).message}` };
          }
        });
        if ('problem' in made) return made;
        known = made;
        // The session stays in memory until the response has come.
        known.chat.open++;
        open.set(id, known);
      }
      const { request, promptIds } = known.turn;
      const { hidesExperts } = known;
      const options = { maxModelLen, takesIds, hidesExperts, trimsStop: isInPath };
      const made = engineRequest(engine, request, promptIds, options);
      known.isExact = made.isExact;
      const requested = hidesExperts
        ? { ...requestedFields(request), return_routed_experts: false }
        : requestedFields(request);
      const { path, form } = made;
      Object.assign(known.call, { form, requested });
      const { isStream } = request;
      return {
        body: new Uint8Array(made.body),
        path,
        form,
        isStream,
        choices: known.choices,
        requested,
        problem: null,
      };
    },

    /** The state of a call that may be a repetition; null: it is the first one, and in flight from now on. */
    async chatRepeat({ id, session, tenant, key, body }: ChatRepeatCall): Promise<ChatRepeated> {
      return begun().with(session, tenant, async (chat): Promise<ChatRepeated> => {
        // As it would be recorded.
        const call = newCall(withDefaults(bufferOf(body), defaults).body);
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
        claims.set(id, { chat, key, call });
        return null;
      });
    },

    async chatClose(call: ChatCloseCall): Promise<ChatClosed> {
      const { isLast } = call;
      const known = isLast ? release(open, call.id) : open.get(call.id);
      try {
        if (known !== undefined) {
          const parts = { pieces: begun().rules.tokenizer.pieces, writer, files, stats };
          const closed = begun().with(known.chat.session, known.chat.tenant, () => keepAnswer(call, known, parts));
          closing.add(closed);
          await closed.finally(() => closing.delete(closed));
        } else if (isLast) throw new Error(UNKNOWN);
        return { problem: '', isStored: call.isAwaited && (await writer.stored()) };
      } catch (error) {
        // The rest of the response may have them.
        if (!isLast) return { problem: '', isStored: true };
        stats.uncaptured++;
        return { problem: (error as Error).message, isStored: true };
      } finally {
        if (isLast) {
          known?.over.resolve();
          // Not earlier: a repetition in between would find neither an answer nor a call in flight.
          known?.chat.repeats.drop(known.key, known.call);
          if (call.expertsKey !== null) files?.drop(call.expertsKey);
        }
      }
    },

    /** Resolves when turns were made of all responses that have come. */
    chatsSettled: () => Promise.allSettled(closing),

    /** There is no response to record. */
    chatDrop(id: number): void {
      open.get(id)?.over.resolve();
      const known = release(claims, id) ?? release(open, id);
      known?.chat.repeats.drop(known.key, known.call);
    },

    /** Removes a chat and its turns. @returns false: there is no such chat, or chats are off */
    async chatRemove({ session, tenant }: ChatName): Promise<boolean> {
      if (chats === null || !(await chats.has(session, tenant))) return false;
      chats.remove(session, tenant);
      await removeStored({ session, tenant });
      return true;
    },

    /** The store is about to remove its turns because of their age. @returns false: a request of it is in flight, so it stays */
    letGo: (session: string, tenant: string): boolean => chats?.letGo(session, tenant) ?? true,

    /** The store has evicted its turns. */
    evicted: (session: string, tenant: string): void => chats?.evicted(session, tenant),

    /** Turns of a session are lost. */
    lost: (session: string, tenant: string): void => chats?.lost(session, tenant),

    /** Removes a session of any kind, of one tenant or of all. @returns how many turns it had */
    removeSession(name: SessionName) {
      if (chats !== null) chats.removeAll(name.session, name.tenant);
      return removeStored(name);
    },

    /** The record of a session, as JSON. */
    chatRecords: (name: ChatName): Promise<Uint8Array> =>
      begun().with(name.session, name.tenant, (chat) =>
        sessionRecords(chat, begun().stored(name.session, name.tenant), begun().rules.tokenizer.pieces),
      ),

    /** The samples of a session; a text: why there are none. */
    async chatSamples({ session, tenant, ...wish }: ChatName & SamplesWish): Promise<Uint8Array | string> {
      return begun().with(session, tenant, async (chat) => {
        await writer.flush();
        const progress = noProgress();
        const isWanted = endsOf(ends, chat.tree, await turnsOf(writer.store, session, tenant));
        const made = await encodeSamples(walk(writer.store, { session, tenant }, progress), wish, {
          tokenizer: begun().rules.tokenizer,
          experts,
          sessionMetadata: sessionMetadata(chat),
          isWanted,
          isTrainedOnce: ends === 'last_attempts',
        });
        const [reason] = Object.keys(progress.leftOut);
        return reason === undefined ? made : `A trajectory of this session is not whole: ${reason}.`;
      });
    },

    chatStats: (): ChatStats => ({ ...stats, unread: chats?.loadFailures ?? 0 }),
  };
}
