import type { ExpertsFiles } from '../capture/experts-files.ts';
import type { DuringRemoval } from '../store/store-calls.ts';
import { turnsOf } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';
import type { ChatOpenCall, ChatOpened, ChatRepeatCall, ChatRepeated } from '../../shared/chat-call-types.ts';
import type { ChatName, SessionName } from '../../shared/turn.ts';
import { noProgress, walk } from '../export/walk.ts';
import { HeapLimits } from '../heap-limits.ts';
import { defaultMemoryBytes } from '../../shared/memory-limit.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { loadChatTemplate } from './chat-template.ts';
import { ChatCaptures } from './chat-captures.ts';
import { Chats } from './chats.ts';
import type { Equality } from './equality.ts';
import { sessionMetadata, sessionRecords } from './records.ts';
import type { RequestDefaults } from './request-defaults.ts';
import { ExpertsReader } from './experts-rows.ts';
import { type SampleEnds, endsOf } from './sample-ends.ts';
import { type SamplesWish, encodeSamples } from './samples.ts';

export interface ChatStats extends Readonly<ChatCaptures['stats']> {
  /** Responses whose tokens could not be read. */
  readonly uncaptured: number;
  /** Sessions whose earlier turns could not be read. */
  readonly unread: number;
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
  readonly removeStored: (name: SessionName, during: DuringRemoval) => Promise<number>;
}

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
  let chats: Chats | null = null;
  let experts: ExpertsReader | null = null;
  let ends: SampleEnds = 'ends';
  const begun = (): Chats => {
    if (chats === null) throw new Error('chat sessions are not on');
    return chats;
  };

  const captures = new ChatCaptures(begun, files, heap);

  const removeSession = (name: SessionName): Promise<number> =>
    removeStored(name, (removal) => chats?.remove(name, removal) ?? removal());

  return {
    captures,

    /** Enables chat sessions, once the tokenizer is loaded; rejects with a message for the user if there is no chat template. */
    chatBegin({ equality, request, samples, isAgain = false }: ChatOptions): void {
      const loaded = tokenizer();
      if (loaded === null || tokenizerPath === null) throw new Error('the tokenizer is not loaded');
      experts = dataDir === null ? null : new ExpertsReader(dataDir, tokenizerPath);
      captures.defaults = request;
      ends = samples;
      chats = new Chats(
        { tokenizer: loaded, template: loadChatTemplate(tokenizerPath), equality },
        writer,
        heap.chatBytes(memoryBytes),
      );
      if (isAgain) chats.mayHaveLost();
    },

    chatKnown: ({ session, tenant }: ChatName): Promise<boolean> => begun().has(session, tenant),

    chatOpen: (call: ChatOpenCall): Promise<ChatOpened> => captures.begin(call),

    /** The state of a call that may be a repetition; null: it is the first one, and in flight from now on. */
    chatRepeat: (call: ChatRepeatCall): Promise<ChatRepeated> => captures.repeated(call),

    /** Removes a chat and its turns. @returns false: there is no such chat, or chats are off */
    async chatRemove({ session, tenant }: ChatName): Promise<boolean> {
      if (chats === null || !(await chats.has(session, tenant))) return false;
      await removeSession({ session, tenant });
      return true;
    },

    /** The store is about to remove its turns because of their age. @returns false: a request of it is in flight, so it stays */
    letGo: (session: string, tenant: string): boolean => chats?.letGo(session, tenant) ?? true,

    /** The store has evicted its turns. */
    evicted: (session: string, tenant: string): void => chats?.evicted(session, tenant),

    /** Turns of a session are lost. */
    lost: (session: string, tenant: string): void => chats?.lost(session, tenant),

    /** Removes a session of any kind, of one tenant or of all. @returns how many turns it had */
    removeSession,

    /** The record of a session, as JSON. */
    chatRecords: (name: ChatName): Promise<Uint8Array> =>
      begun().with(name.session, name.tenant, async (chat) => {
        const stored = begun().stored(name.session, name.tenant);
        const parts: Uint8Array[] = [];
        for await (const part of sessionRecords(chat, stored, begun().rules.tokenizer.pieces)) parts.push(part);
        return Buffer.concat(parts);
      }),

    /** The samples of a session; a text: why there are none. Rejects while the store fails and lacks turns of it. */
    async chatSamples({ session, tenant, ...wish }: ChatName & SamplesWish): Promise<Uint8Array | string> {
      return begun().with(session, tenant, async (chat) => {
        await writer.flush();
        writer.requireAll({ session, tenant });
        const progress = noProgress();
        const isWanted = endsOf(ends, chat.tree, await turnsOf(writer.store, session, tenant));
        const made = await encodeSamples(walk(writer.store, { session, tenant }, progress, false), wish, {
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

    chatStats: (): ChatStats => ({
      ...captures.stats,
      uncaptured: captures.uncaptured,
      unread: chats?.loadFailures ?? 0,
    }),
  };
}
