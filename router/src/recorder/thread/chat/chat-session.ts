import { isDeepStrictEqual } from 'node:util';
import { TurnIds } from '../capture/turn-id.ts';
import { Unreadable } from '../../../generation/delta.ts';
import type { KeptTensors } from '../read/tensors.ts';
import { commonLength, joinedIds } from '../tokens/ids.ts';
import { type Tokenizer, encodeRest, textOfIds } from '../tokens/tokenizer.ts';
import type { Drift, Turn } from '../../shared/turn.ts';
import { tokenFields } from '../turn-tokens.ts';
import type { AskedVersion } from '../../../weights/version-spans.ts';
import { CHAT_PATH } from '../../../engines/dialects/calls.ts';
import type { ChatRequest } from './chat-request.ts';
import type { ChatTemplate, Rendering } from './chat-template.ts';
import { continueBehind } from './continue.ts';
import { cutAnswer } from './cut-answer.ts';
import { type Equality, messageKey } from './equality.ts';
import { type Message, weightOf } from '../read/message.ts';
import type { ChatSample } from '../read/read-chat.ts';
import { Repeats } from './repeats.ts';
import { type ChatTurn, SessionTree, idsUpTo } from './session-tree.ts';

/** What sessions have in common. */
export interface ChatRules {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  readonly equality: Equality;
}

/** Facts of a turn beside its tokens. */
export type ChatFacts = Pick<Turn, 'group' | 'worker' | 'startedAtMs' | 'ttftMs' | 'generationMs'> & {
  readonly asked: AskedVersion;
};

/** The response of a turn as a message. */
type Answered = Pick<ChatSample, 'message' | 'isTorn'>;

/** Tokens of a prompt, after those of its parent's trajectory. */
interface Prompt {
  readonly keeps: number;
  readonly ids: Int32Array;
  readonly text: string;
  readonly isAfresh: boolean;
  readonly drift: Drift | null;
}

/** A request in flight. */
export interface OpenTurn {
  readonly request: ChatRequest;
  readonly parent: ChatTurn | null;
  readonly added: readonly Message[];
  readonly addedKeys: readonly string[];
  /** Why an answer in the request is not on record; null: all answers that were sampled here are. */
  readonly unmatched: 'lost' | 'text' | null;
  /** Several turns have the answer that it continues: it is not known which one the client means. */
  readonly isAmbiguous: boolean;
  /** null: the engine renders it. */
  readonly prompt: Prompt | null;
  /** All tokens of the prompt. */
  readonly promptIds: Int32Array | null;
}

const SESSION_BYTES = 1_000;
const TURN_BYTES = 1_000;

/** One chat: its turns as a tree, with the ids that engines were given and sampled. */
export class ChatSession {
  readonly tree = new SessionTree();
  readonly repeats = new Repeats();
  readonly session: string;
  readonly tenant: string;
  /** Changes wait for this. */
  lock: Promise<unknown> = Promise.resolve();
  /** Requests in flight. */
  open = 0;
  isRemoved = false;
  /** Resolves when it is known whether it is removed; null: it is. */
  removal: Promise<void> | null = null;
  /** It differs from the store, and is read again when its requests in flight have ended. */
  isEvicted = false;
  /** Turns of it are lost or can't be read: unknown answers may have been sampled in it. */
  isLost = false;
  /** Its estimated memory, also without turns. */
  bytes = SESSION_BYTES;
  readonly #rules: ChatRules;
  readonly #ids: TurnIds;
  /** Turns that a request may continue. */
  readonly #continued = new WeakSet<ChatTurn>();

  constructor(session: string, tenant: string, rules: ChatRules, ids: TurnIds) {
    this.session = session;
    this.tenant = tenant;
    this.#rules = rules;
    this.#ids = ids;
  }

  keysOf({ messages }: ChatRequest): string[] {
    return messages.map((message) => messageKey(message, this.#rules.equality));
  }

  /**
   * Finds the turn that a request continues, and the ids of its prompt. Throws what the chat template throws.
   * @param inFlight how many messages of the request end with an answer that is still in flight; 0: none
   */
  async ask(request: ChatRequest, inFlight = 0): Promise<OpenTurn> {
    const { tokenizer, template } = this.#rules;
    const keys = this.keysOf(request);
    const { parent, unmatched: known, isAmbiguous: isOneOfSeveral } = this.#parentOf(request, keys);
    if (parent !== null) this.#continued.add(this.tree.turns.get(parent.id) ?? parent);
    const from = parent?.depth ?? 0;
    const unmatched = known ?? (inFlight > from ? 'text' : null);
    const isAmbiguous = isOneOfSeveral || (parent !== null && inFlight === from);
    const added = request.messages.slice(from);
    const common = { request, parent, added, addedKeys: keys.slice(from), unmatched, isAmbiguous };
    if (request.isForeign) return { ...common, prompt: null, promptIds: null };
    const made = continueBehind(parent, added, template, renderingOf(request), tokenizer.pieces);
    const before = idsUpTo(parent);
    if (!made.isAfresh) {
      const ids = Int32Array.from(await encodeRest(tokenizer, made.text));
      const kind = unmatched ?? made.drift;
      const drift = kind === null ? null : { kind, at: made.keeps };
      return { ...common, prompt: { ...made, ids, drift }, promptIds: joinedIds(before.subarray(0, made.keeps), ids) };
    }
    const all = Int32Array.from(await tokenizer.encode(made.text, false));
    return { ...common, prompt: this.#afresh(before, all, made.text, made.drift, unmatched), promptIds: all };
  }

  /** @param keys of the request's messages */
  #parentOf(request: ChatRequest, keys: readonly string[]): Pick<OpenTurn, 'parent' | 'unmatched' | 'isAmbiguous'> {
    const { messages } = request;
    const parent = this.tree.attach(keys);
    const depth = parent?.depth ?? 0;
    const others = this.tree.otherAnswers(keys).filter((turn) => turn.depth > depth);
    const cuts = others.flatMap((turn) => this.#cutOf(turn, messages[turn.depth - 1]!) ?? []);
    // Of the deepest ones, one that ends with a token.
    const [first] = cuts;
    const cut = cuts.find(({ rest, depth: own }) => rest === '' && own === first!.depth) ?? first;
    if (cut !== undefined) {
      const isAmbiguous = cuts.some(({ id, depth: own }) => id !== cut.id && own === cut.depth);
      return { parent: this.#besideWhole(cut), unmatched: null, isAmbiguous };
    }
    // In a session with lost turns, an unknown answer may have been sampled here: its ids are lost.
    const isLost = this.isLost && messages.slice(depth).some(({ role }) => role === 'assistant');
    const isOther = others.some((turn) => messages[turn.depth - 1]!.role === 'assistant');
    const isAmbiguous = parent !== null && (this.tree.hasEqual(parent, keys) || this.#hasPart(parent, request, keys));
    const got = parent === null ? null : this.#asGot(parent, messages[depth - 1]!);
    return { parent: got, unmatched: isLost ? 'lost' : isOther ? 'text' : null, isAmbiguous };
  }

  /** Without the last tokens of a truncated answer whose text did not come: vLLM sends ids at once, and text that may begin a stop string later. */
  #asGot(turn: ChatTurn, message: Message): ChatTurn {
    const cut = turn.isTorn ? this.#cutOf(turn, message) : null;
    return cut === null || cut.sampled === turn.sampled ? turn : this.#besideWhole(cut);
  }

  /** Whether the request may also continue a truncated answer with the same beginning, or another part of the answer. */
  #hasPart(parent: ChatTurn, { messages }: ChatRequest, keys: readonly string[]): boolean {
    const isWhole = this.tree.turns.get(parent.id) === parent;
    return this.tree
      .otherAnswers(keys)
      .filter(({ id, depth, isTorn }) => depth === parent.depth && id !== parent.id && (isTorn || !isWhole))
      .some((turn) => this.#cutOf(turn, messages[turn.depth - 1]!) !== null);
  }

  /** The part of this turn's answer that the client has, as a turn that replaces it; null: the client has another answer. */
  #cutOf(turn: ChatTurn, message: Message): ChatTurn | null {
    return cutAnswer(turn, message, this.#rules.equality, this.#rules.tokenizer.pieces);
  }

  #besideWhole(cut: ChatTurn): ChatTurn {
    this.tree.addBeside(cut);
    this.bytes += TURN_BYTES;
    return cut;
  }

  #afresh(
    before: Int32Array,
    all: Int32Array,
    text: string,
    rewritten: Drift['kind'] | null,
    unmatched: Drift['kind'] | null,
  ): Prompt {
    const keeps = commonLength(before, all);
    const kind = unmatched ?? (keeps === before.length ? null : rewritten);
    const drift = kind === null ? null : { kind, at: keeps };
    return { keeps, ids: all.subarray(keeps), text, isAfresh: true, drift };
  }

  /** Adds the turns of a response. @param isExact the engine got the router's ids @returns the turns to store. Throws `Unreadable`. */
  async answered(
    open: OpenTurn,
    isExact: boolean,
    samples: readonly ChatSample[],
    facts: ChatFacts,
    { answer, callKey }: { readonly answer: Uint8Array; readonly callKey: string },
    tensorsOf: (sample: ChatSample, tokens: number) => KeptTensors,
  ): Promise<Turn[]> {
    const made: [ChatTurn, Turn][] = [];
    for (const sample of samples) {
      const prompt = isExact ? given(open, sample) : await this.#observed(open, sample);
      const tokens = prompt.keeps + prompt.ids.length + sample.ids.length;
      const kept = { answer, ...tensorsOf(sample, tokens), ...(callKey === '' ? {} : { callKey }) };
      made.push(await this.#turnOf(this.#ids.next(open.parent?.id ?? null), open, prompt, sample, facts, kept));
    }
    for (const [turn] of made) this.#add(turn, open.request);
    return made.map(([, turn]) => turn);
  }

  /** Completes a turn. @returns the turn to store. Throws `Unreadable`. */
  async completed(
    before: Turn,
    open: OpenTurn,
    isExact: boolean,
    sample: ChatSample,
    facts: ChatFacts,
    { callKey, ...came }: Pick<Turn, 'answer' | 'experts' | 'indexer'> & { readonly callKey: string },
  ): Promise<Turn> {
    const { id, ids, generationMs, keeps } = before;
    const outputTokens = before.outputTokens!;
    const prompt = isExact ? given(open, sample) : await this.#observed(open, sample);
    const kept = { ...came, ...(callKey === '' ? {} : { callKey }) };
    const [chat, turn] = await this.#turnOf(id, open, prompt, sample, { ...facts, generationMs }, kept);
    const own = ids.length - outputTokens;
    const shared = commonLength(ids.subarray(own), sample.ids);
    if (shared === outputTokens && shared === sample.ids.length) return turn;
    // The first report of its tokens was not complete.
    const known = this.tree.turns.get(id);
    if (known === undefined || this.#continued.has(known)) {
      const mask = before.mask.slice().fill(0, own + shared);
      const drift = { kind: 'tokens', at: keeps + own + shared } as const;
      return { ...before, ...kept, mask, finishReason: turn.finishReason, drift, choice: sample.index };
    }
    this.tree.replace(known, chat);
    this.bytes +=
      chat.ids.byteLength - known.ids.byteLength + 4 * ((chat.text?.length ?? 0) - (known.text?.length ?? 0));
    return turn;
  }

  /** The prompt ids that the engine returned. */
  async #observed({ parent, unmatched }: OpenTurn, { promptIds }: ChatSample): Promise<Prompt> {
    if (promptIds === null) throw new Unreadable('the ids of its prompt are not in it');
    const all = Int32Array.from(promptIds);
    const before = idsUpTo(parent);
    const keeps = commonLength(before, all);
    const { tokenizer } = this.#rules;
    if (parent === null || keeps < before.length) {
      return this.#afresh(before, all, await textOfIds(tokenizer, all), 'template', unmatched);
    }
    const ids = all.subarray(keeps);
    const kind = unmatched ?? (parent.rest === '' ? null : 'text');
    const drift = kind === null ? null : { kind, at: keeps };
    return { keeps, ids, text: await textOfIds(tokenizer, ids), isAfresh: false, drift };
  }

  async #turnOf(
    id: string,
    { parent, added, addedKeys, request, isAmbiguous }: OpenTurn,
    { keeps, ids: asked, text, isAfresh, drift }: Prompt,
    sample: ChatSample,
    { asked: askedVersion, ...facts }: ChatFacts,
    kept: Pick<Turn, 'answer' | 'experts' | 'indexer' | 'callKey'>,
  ): Promise<[ChatTurn, Turn]> {
    const index = (parent?.index ?? -1) + 1;
    const turn: Turn = {
      ...facts,
      id,
      session: this.session,
      tenant: this.tenant,
      parent: parent?.id ?? null,
      keeps,
      index,
      model: request.model,
      path: CHAT_PATH,
      ...tokenFields(asked, sample, askedVersion),
      promptTokens: keeps + asked.length,
      drift,
      ...(isAmbiguous ? { isAmbiguous } : {}),
      request: request.body,
      ...kept,
    };
    const sampledText = await textOfIds(this.#rules.tokenizer, sample.ids);
    const chat = this.#chatTurn(turn, parent, added, addedKeys, sample, text + sampledText, isAfresh, request);
    return [chat, turn];
  }

  /** Adds a turn of the store. Turns come in the order of their ids. @returns false: a turn before it is lost */
  async restore(turn: Turn, request: ChatRequest, sample: Answered): Promise<boolean> {
    const whole = turn.parent === null ? null : this.tree.turns.get(turn.parent);
    if (whole === undefined) return false;
    const parent = whole === null ? null : this.#asSent(whole, request.messages[whole.depth - 1], turn.keeps);
    const added = request.messages.slice(parent?.depth ?? 0);
    const keys = added.map((each) => messageKey(each, this.#rules.equality));
    const isAfresh = parent === null || turn.keeps < parent.keeps + parent.ids.length;
    const ids = isAfresh && parent !== null ? joinedIds(idsUpTo(parent).subarray(0, turn.keeps), turn.ids) : turn.ids;
    const text = await textOfIds(this.#rules.tokenizer, ids);
    this.#add(this.#chatTurn(turn, parent, added, keys, sample, text, isAfresh, request), request);
    return true;
  }

  /** The part of the turn that its client had when it continued: the answer is in the request. @param keeps of the turn that continues it */
  #asSent(turn: ChatTurn, answer: Message | undefined, keeps: number): ChatTurn {
    if (answer === undefined) return turn;
    const key = messageKey(answer, this.#rules.equality);
    const isSame = turn.keys.at(-1) === key;
    if (isSame && keeps === turn.keeps + turn.ids.length) return turn;
    const siblings = turn.parent?.children ?? this.tree.roots;
    const known = siblings.find((each) => each !== turn && each.id === turn.id && each.keys.at(-1) === key);
    if (known !== undefined) return known;
    if (isSame) return this.#asGot(turn, answer);
    const cut = this.#cutOf(turn, answer);
    return cut === null ? turn : this.#besideWhole(cut);
  }

  #chatTurn(
    { id, index, keeps, ids, outputTokens: sampled }: Turn,
    parent: ChatTurn | null,
    added: readonly Message[],
    addedKeys: readonly string[],
    { message, isTorn }: Answered,
    text: string,
    isAfresh: boolean,
    request: ChatRequest,
  ): ChatTurn {
    const messages = [...added, withoutStop(message, ids.at(-1), this.#rules.tokenizer.pieces)];
    const keys = [...addedKeys, messageKey(message, this.#rules.equality)];
    const depth = (parent?.depth ?? 0) + messages.length;
    const place = { id, parent, children: [], depth, index, keeps };
    const own = renderingOf(request);
    // Tools may be long, and are usually the same in all turns.
    const rendering = parent !== null && isDeepStrictEqual(parent.rendering, own) ? parent.rendering : own;
    return { ...place, messages, keys, ids, sampled: sampled!, text, rest: '', isAfresh, isTorn, rendering };
  }

  #add(turn: ChatTurn, { isForeign }: ChatRequest): void {
    this.tree.add(turn);
    const { ids, text, messages, rendering, parent } = turn;
    this.bytes += TURN_BYTES + ids.byteLength + 4 * (text?.length ?? 0);
    // Images are not part of its text, nor are tools that several turns share.
    if (isForeign) this.bytes += weightOf(messages);
    if (rendering !== parent?.rendering) this.bytes += weightOf(rendering);
  }
}

const renderingOf = ({ tools, more }: ChatRequest): Rendering => ({ tools, more });

/**
 * An answer for the template. With `no_stop_trim` (vLLM: `include_stop_str_in_output`) its text has the stop token,
 * which the template writes behind each answer: the next prompt would have it twice.
 */
function withoutStop(message: Message, last: number | undefined, pieces: Tokenizer['pieces']): Message {
  const { content } = message;
  if (typeof content !== 'string' || last === undefined || !pieces.isSpecial(last)) return message;
  const stop = pieces.bytesOf(last)?.toString() ?? '';
  return stop !== '' && content.endsWith(stop) ? { ...message, content: content.slice(0, -stop.length) } : message;
}

/** The prompt that was sent, unless the engine returned another one. */
function given({ prompt, promptIds }: OpenTurn, sample: ChatSample): Prompt {
  const { promptIds: read, promptTokens: count } = sample;
  const sent = promptIds!;
  if (read !== null && (read.length !== sent.length || read.some((id, i) => id !== sent[i]))) {
    throw new Unreadable('the engine read other tokens than it was sent');
  }
  // SGLang returns no ids of prompts, and truncates long ones with --allow-auto-truncate.
  if (read === null && count !== null && count !== sent.length) {
    throw new Unreadable(`the engine read ${count} tokens where there are ${sent.length}`);
  }
  return prompt!;
}
