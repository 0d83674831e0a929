import type { ChatRepeatCall, ChatRepeated } from '../../shared/chat-call-types.ts';
import type { ChatSession } from './chat-session.ts';
import type { Chats } from './chats.ts';
import { type Repeatable, clientsAnswer, newCall } from './repeats.ts';

/** A call in flight: a repetition of it gets an error. */
export interface Claim {
  readonly chat: ChatSession;
  readonly key: string;
  readonly call: Repeatable;
}

/** Calls with a key that have no engine yet. */
export class Claims {
  readonly #chats: () => Chats;
  readonly #claims = new Map<number, Claim>();

  constructor(chats: () => Chats) {
    this.#chats = chats;
  }

  /** The state of a call that may be a repetition; null: it is the first one, and in flight from now on. @param body as it would be recorded */
  make({ id, session, tenant, key }: ChatRepeatCall, body: Buffer): Promise<ChatRepeated> {
    const { writer } = this.#chats();
    return this.#chats().with(session, tenant, async (chat): Promise<ChatRepeated> => {
      const call = newCall(body);
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

  take(id: number): Claim | null {
    const claim = this.#claims.get(id) ?? null;
    if (claim !== null) claim.chat.open--;
    this.#claims.delete(id);
    return claim;
  }
}
