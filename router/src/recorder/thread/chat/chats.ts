import { setImmediate } from 'node:timers/promises';
import { Unreadable } from '../../../generation/delta.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { defaultMemoryBytes } from '../../shared/memory-limit.ts';
import { turnsOf } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';
import type { TokenPieces } from '../tokens/pieces.ts';
import type { SessionName, Turn } from '../../shared/turn.ts';
import { CHAT_PATH } from '../../../engines/dialects/calls.ts';
import { readChatRequest } from './chat-request.ts';
import { type ChatRules, ChatSession } from './chat-session.ts';
import { answerValues, readChatAnswer } from '../read/read-answer.ts';
import type { ChatSample } from '../read/read-chat.ts';
import { storedCall } from './repeats.ts';
import { isSessionId } from '../../shared/session-id.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

/** How many ids of removed sessions are remembered. */
const MAX_REMOVED = 100_000;

/** The chats in memory; others are loaded from the store when a request needs them. */
export class Chats {
  readonly rules: ChatRules;
  readonly writer: TurnWriter;
  readonly #memoryBytes: number;
  /** In order of last use. */
  readonly #sessions = new Map<string, ChatSession>();
  readonly #removed = new Set<string>();
  readonly #lost = new LostSessions();
  #bytes = 0;
  /** Sessions whose turns could not be read. */
  loadFailures = 0;

  /** @param memoryBytes memory limit of sessions without requests in flight, which are also in the store */
  constructor(rules: ChatRules, writer: TurnWriter, memoryBytes = defaultMemoryBytes()) {
    this.rules = rules;
    this.writer = writer;
    this.#memoryBytes = memoryBytes;
  }

  /** Runs `work` with a session after all earlier work with it has ended. */
  async with<T>(session: string, tenant: string, work: (chat: ChatSession) => Promise<T>): Promise<T> {
    const name = tenantKey(tenant, session);
    if (this.#sessions.get(name)?.isEvicted === true) this.letGo(session, tenant);
    const known = this.#sessions.get(name);
    const chat = known ?? new ChatSession(session, tenant, this.rules, this.writer.ids);
    if (known === undefined) this.#bytes += chat.bytes;
    this.#sessions.delete(name);
    this.#sessions.set(name, chat);
    chat.open++;
    const before = chat.lock;
    const done = (async (): Promise<T> => {
      await before;
      const was = chat.bytes;
      if (known === undefined) await this.#load(chat).catch(() => this.#loadFailed(chat));
      try {
        return await work(chat);
      } finally {
        this.#bytes += chat.isRemoved ? 0 : chat.bytes - was;
      }
    })();
    // Without the result, which may be a request with its body: the chat would keep it until its next work.
    chat.lock = done.then(
      () => {},
      () => {},
    );
    try {
      return await done;
    } finally {
      chat.open--;
      this.#trim();
    }
  }

  /** Whether the session exists. */
  async has(session: string, tenant: string): Promise<boolean> {
    const name = tenantKey(tenant, session);
    if (this.#removed.has(name)) return false;
    if (isSessionId(session) || (this.#sessions.get(name)?.tree.turns.size ?? 0) > 0) return true;
    await this.writer.flush();
    return (await this.writer.store.newest({ session, tenant, limit: 1 })).length > 0;
  }

  /**
   * Removes a session when `removal` has removed its turns: requests in flight are not recorded then. If that fails all is as before. Responses
   * that end meanwhile, and requests that come, wait for it.
   * @param tenant undefined: of all tenants whose sessions are in memory
   */
  async remove<T>({ session, tenant }: SessionName, removal: () => Promise<T>): Promise<T> {
    const tenants = tenant === undefined ? this.#tenantsWith(session) : [tenant];
    const chats = tenants.flatMap((each) => this.#sessions.get(tenantKey(each, session)) ?? []);
    const { promise, resolve } = Promise.withResolvers<void>();
    for (const chat of chats) chat.removal = promise;
    try {
      const removed = await removal();
      for (const each of tenants) this.#remove(session, each);
      return removed;
    } finally {
      for (const chat of chats) if (chat.removal === promise) chat.removal = null;
      resolve();
    }
  }

  /** Resolves when the session is not being removed. */
  async settled(session: string, tenant: string): Promise<void> {
    await this.#sessions.get(tenantKey(tenant, session))?.removal;
  }

  #tenantsWith(session: string): string[] {
    return [...this.#sessions.values()].filter((chat) => chat.session === session).map(({ tenant }) => tenant);
  }

  #remove(session: string, tenant: string): void {
    const name = tenantKey(tenant, session);
    const chat = this.#sessions.get(name);
    if (chat !== undefined) {
      chat.isRemoved = true;
      this.#drop(name, chat);
    }
    this.#lost.add(name);
    this.#removed.add(name);
    if (this.#removed.size > MAX_REMOVED) this.#removed.delete(this.#removed.values().next().value!);
  }

  /** Removes it from memory, unless a request is in flight; the next request reads it from the store. */
  letGo(session: string, tenant: string): boolean {
    const name = tenantKey(tenant, session);
    const chat = this.#sessions.get(name);
    if (chat === undefined) return true;
    if (chat.open > 0) return false;
    this.#drop(name, chat);
    return true;
  }

  #drop(name: string, chat: ChatSession): void {
    this.#bytes -= chat.bytes;
    this.#sessions.delete(name);
  }

  /** Which sessions have lost turns is not known. */
  mayHaveLost(): void {
    this.#lost.hasForgotten = true;
  }

  /** Turns of this session are lost. */
  lost(session: string, tenant: string): void {
    const name = tenantKey(tenant, session);
    this.#lost.add(name);
    const chat = this.#sessions.get(name);
    if (chat !== undefined) chat.isLost = true;
  }

  /** The store has no space for its turns: it begins anew when the requests in flight have ended. */
  evicted(session: string, tenant: string): void {
    this.lost(session, tenant);
    const chat = this.#sessions.get(tenantKey(tenant, session));
    if (chat !== undefined && !this.letGo(session, tenant)) chat.isEvicted = true;
  }

  isRemoved(session: string, tenant: string): boolean {
    return this.#removed.has(tenantKey(tenant, session));
  }

  /** A removed session is created again. */
  begin(session: string, tenant: string): void {
    this.#removed.delete(tenantKey(tenant, session));
  }

  /** Its stored turns, in order; other captures with its key are not turns of a chat. */
  async *stored(session: string, tenant: string): AsyncGenerator<Turn> {
    await this.writer.flush();
    const { store } = this.writer;
    // Turns that a failing store gets later. Before the list: one that it gets meanwhile is in one of the two.
    const waiting = this.writer.waiting(session, tenant);
    const outlines = await turnsOf(store, session, tenant);
    for (const { id, path } of outlines) {
      const turn = path === CHAT_PATH ? await store.get(id) : null;
      if (turn !== null) yield turn;
    }
    const stored = new Set(outlines.map(({ id }) => id));
    for (const turn of waiting) if (turn.path === CHAT_PATH && !stored.has(turn.id)) yield turn;
  }

  async #load(chat: ChatSession): Promise<void> {
    chat.isLost = this.#lost.has(tenantKey(chat.tenant, chat.session));
    const answers = new StoredAnswers(this.rules.tokenizer.pieces);
    for await (const turn of this.stored(chat.session, chat.tenant)) {
      if (!(await this.#restore(chat, turn, answers))) chat.isLost = true;
      // Long answers take time to read, in which other calls of the thread would wait.
      await setImmediate();
    }
  }

  /** If the store fails, a session continues without its earlier turns; the store is read again at the next request. */
  #loadFailed(chat: ChatSession): void {
    this.loadFailures++;
    chat.isLost = true;
    chat.isEvicted = true;
  }

  /** @returns false: this turn can't be continued */
  async #restore(chat: ChatSession, turn: Turn, answers: StoredAnswers): Promise<boolean> {
    const { request: asked, answer } = turn;
    if (asked === null || answer === null) return false;
    const request = readChatRequest(Buffer.from(asked));
    if (typeof request === 'string') return false;
    const own = answers.sampleOf(turn, request.isStream, bufferOf(answer));
    if (own === null || !(await chat.restore(turn, request, own))) return false;
    if (turn.callKey !== undefined) {
      const [first] = answerValues(request.isStream, Buffer.from(answer));
      chat.repeats.begin(turn.callKey, storedCall(request, turn.id, first));
    }
    return true;
  }

  #trim(): void {
    for (const [name, chat] of this.#sessions) {
      if (this.#bytes <= this.#memoryBytes) return;
      if (chat.open === 0) this.#drop(name, chat);
    }
  }
}

/** Reads responses of turns that are loaded. The turns of several choices have the same response: it is read once. */
class StoredAnswers {
  readonly #pieces: TokenPieces;
  #last: { readonly isStream: boolean; readonly answer: Buffer } | null = null;
  /** Of the last one: as a whole response, and as one that goes on. */
  #read: (readonly ChatSample[])[] = [];

  constructor(pieces: TokenPieces) {
    this.#pieces = pieces;
  }

  /** The choice of a response that is the turn. */
  sampleOf({ ids, outputTokens, choice }: Turn, isStream: boolean, answer: Buffer): ChatSample | null {
    const sampled = ids.subarray(ids.length - outputTokens!);
    const isOwn = (sample: ChatSample): boolean =>
      choice === undefined
        ? sample.ids.length === sampled.length && sample.ids.every((id, i) => id === sampled[i])
        : sample.index === choice;
    if (this.#last?.isStream !== isStream || !this.#last.answer.equals(answer)) {
      this.#last = { isStream, answer };
      this.#read = [];
    }
    for (const [i, isLast] of [true, false].entries()) {
      const own = (this.#read[i] ??= this.#samples(isStream, answer, isLast)).find(isOwn);
      if (own !== undefined) return own;
    }
    return null;
  }

  #samples(isStream: boolean, answer: Buffer, isLast: boolean): readonly ChatSample[] {
    try {
      return readChatAnswer(isStream, answer, this.#pieces, isLast);
    } catch (error) {
      if (error instanceof Unreadable) return [];
      throw error;
    }
  }
}

/** How many names are remembered. */
const MAX_NAMES = 100_000;

/** Names of sessions with lost turns. Once names were forgotten, any other name may be one too. */
class LostSessions {
  readonly #names = new Set<string>();
  hasForgotten = false;

  add(name: string): void {
    this.#names.delete(name);
    this.#names.add(name);
    if (this.#names.size <= MAX_NAMES) return;
    this.hasForgotten = true;
    this.#names.delete(this.#names.values().next().value!);
  }

  has(name: string): boolean {
    return this.hasForgotten || this.#names.has(name);
  }
}
