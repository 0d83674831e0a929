import { engineRequest, requestedFields } from '../../../engines/dialects/chat.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import type {
  ChatOpenCall,
  ChatOpened,
  ChatProblem,
  ChatRepeatCall,
  ChatRepeated,
} from '../../shared/chat-call-types.ts';
import { type ChatRequest, readChatRequest } from './chat-request.ts';
import { noSuchSession } from '../../shared/session-id.ts';
import type { Turn } from '../../shared/turn.ts';
import type { ExpertsFiles } from '../capture/experts-files.ts';
import { Captures, type EndedResponse, unanswered } from '../captures.ts';
import type { HeapLimits } from '../heap-limits.ts';
import { ChoiceEvents } from '../read/choice-events.ts';
import { EncodingRefused } from '../tokens/in-lanes.ts';
import type { Chats } from './chats.ts';
import { Claims } from './claims.ts';
import { keepAnswer } from './keep-answer.ts';
import { type OpenChat, waitForAnswers } from './open-chat.ts';
import { newCall } from './repeats.ts';
import { type RequestDefaults, withDefaults } from './request-defaults.ts';

const choicesOf = ({ fields }: ChatRequest): number => (typeof fields.n === 'number' && fields.n > 0 ? fields.n : 1);

/** Chats: their turns are in the trees of their sessions. */
export class ChatCaptures extends Captures<OpenChat> {
  /** Turns; those whose prompt is no continuation of the record, that engines rendered themselves, whose streams were truncated. */
  readonly stats = { turns: 0, drifted: 0, observed: 0, torn: 0 };
  /** Members that a chat has where its client leaves them out. */
  defaults: RequestDefaults = {};
  readonly #chats: () => Chats;
  readonly #heap: HeapLimits;
  readonly #claims: Claims;

  constructor(chats: () => Chats, files: ExpertsFiles | null, heap: HeapLimits) {
    super(files, false);
    this.#chats = chats;
    this.#heap = heap;
    this.#claims = new Claims(chats);
  }

  async begin({ id, engine, maxModelLen, takesIds, ...asked }: ChatOpenCall): Promise<ChatOpened> {
    let known = this.open.get(id);
    if (known === undefined) {
      const made = await this.#opened(id, asked);
      if ('problem' in made) return made;
      known = made;
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
    await chats.settled(session, tenant);
    if (!isInPath) chats.begin(session, tenant);
    else if (chats.isRemoved(session, tenant)) return { problem: noSuchSession(session), code: 'session_not_found' };
    const claim = this.#claims.take(id);
    const inFlight = await waitForAnswers(this.open.values(), request, { session, tenant });
    return chats.with(session, tenant, async (chat) => {
      const own = newCall(request.body);
      const call = Object.assign(claim?.call ?? own, { isStream: request.isStream });
      try {
        const turn = await chat.ask(request, inFlight);
        chat.repeats.begin(key, call);
        const answer = { events: new ChoiceEvents(), turns: new Map<number, Turn>(), ...unanswered() };
        const rest = { choices: choicesOf(request), ...answer };
        // Turns of the response are added to this object, so it stays in memory until they are made: another one would not have them.
        chat.open++;
        return { chat, turn, isExact: false, hidesExperts, key, call, isAsAsked: call.digest === own.digest, ...rest };
      } catch (error) {
        chat.repeats.drop(key, call);
        if (error instanceof EncodingRefused) return { problem: error.message, code: error.code };
        // Usually raise_exception of the template, for a message that it does not support.
        return { problem: `The chat template refuses these messages: ${(error as Error).message}` };
      }
    });
  }

  /** The state of a call that may be a repetition; null: it is the first one, and in flight from now on. */
  repeated(call: ChatRepeatCall): Promise<ChatRepeated> {
    return this.#claims.make(call, withDefaults(bufferOf(call.body), this.defaults).body);
  }

  override drop(id: number): void {
    const claim = this.#claims.take(id);
    claim?.chat.repeats.drop(claim.key, claim.call);
    super.drop(id);
  }

  protected override async place(response: EndedResponse, known: OpenChat, answer: Buffer): Promise<void> {
    const chats = this.#chats();
    const { session, tenant } = known.chat;
    const parts = { pieces: chats.rules.tokenizer.pieces, writer: chats.writer, files: this.files, stats: this.stats };
    await chats.with(session, tenant, () => keepAnswer(response, known, answer, parts));
  }

  /** Not earlier: a repetition in between would find neither an answer nor a call in flight, and the session would be read without its turns. */
  protected override close({ chat, key, call }: OpenChat): void {
    chat.open--;
    chat.repeats.drop(key, call);
  }
}
