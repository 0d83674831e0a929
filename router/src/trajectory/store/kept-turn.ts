import { type Packed, PackedMemory, type Slab } from '../../kit/packed-memory.ts';
import type { Drift, RoutedExperts, Turn, TurnTexts, VersionSpan } from '../turn.ts';
import { type TurnOutline, outlineOf } from './store.ts';

/** Numbers of a turn, as doubles at the beginning of what is packed. */
const NUMBERS = 9;

/** The objects of a turn and its places in the store's tables, as measured on Node 24. */
const TURN_BYTES = 700;

/**
 * A turn in memory: its numbers and tokens are packed. Those at the beginning that were not sampled have neither logprob nor mask
 * there.
 */
export class KeptTurn implements Packed {
  slab: Slab | null = null;
  at = 0;
  readonly id: string;
  readonly session: string;
  readonly group: string;
  readonly tenant: string;
  readonly bytes: number;
  versions: readonly VersionSpan[];
  readonly experts: RoutedExperts | null;
  readonly indexer?: RoutedExperts;
  readonly #topTokens: Uint8Array | null;
  readonly #parent: string | null;
  readonly #worker: string;
  readonly #model: string;
  readonly #path: string;
  readonly #finishReason: string;
  readonly #drift: Drift | null;
  readonly #isAmbiguous: boolean;
  readonly #request: Uint8Array | null;
  readonly #answer: Uint8Array | null;
  readonly #callKey: string;
  readonly #isExact: boolean;
  readonly #texts: TurnTexts | undefined;
  readonly #tokens: number;
  /** So many of them, at the beginning, have no logprob and were not sampled. */
  readonly #given: number;

  constructor(turn: Turn, memory: PackedMemory) {
    const { request, answer } = turn;
    this.id = turn.id;
    // Without a key it is the turn's own: one string for both.
    this.session = turn.session === turn.id ? turn.id : turn.session;
    this.group = turn.group;
    this.tenant = turn.tenant;
    this.versions = turn.versions;
    this.#parent = turn.parent;
    this.#worker = turn.worker;
    this.#model = turn.model;
    this.#path = turn.path;
    this.#finishReason = turn.finishReason;
    this.#drift = turn.drift;
    this.#isAmbiguous = turn.isAmbiguous === true;
    this.experts = turn.experts;
    if (turn.indexer !== undefined) this.indexer = turn.indexer;
    this.#topTokens = turn.topTokens ?? null;
    this.#request = request;
    this.#answer = answer;
    this.#callKey = turn.callKey ?? '';
    this.#isExact = turn.isExact !== false;
    this.#texts = turn.texts;
    this.#tokens = turn.ids.length;
    this.#given = givenOf(turn);
    const words = this.#pack(turn, memory);
    this.bytes =
      TURN_BYTES + PackedMemory.bytesOf(words) + textBytes(turn.texts) + (request?.length ?? 0) + (answer?.length ?? 0);
    this.bytes += this.#topTokens?.length ?? 0;
  }

  get startedAtMs(): number {
    return this.slab!.doubles[this.at / 2]!;
  }

  /** As it was put; its tokens are copies. */
  turn(): Turn {
    const { words, doubles, bytes } = this.slab!;
    const numbers = this.at / 2;
    const own = this.#tokens - this.#given;
    const logprobs = new Float64Array(this.#tokens);
    const mask = new Uint8Array(this.#tokens);
    let at = this.at + 2 * NUMBERS;
    logprobs.set(doubles.subarray(at / 2, at / 2 + own), this.#given);
    at += 2 * own;
    const ids = words.slice(at, at + this.#tokens);
    at += this.#tokens;
    mask.set(bytes.subarray(4 * at, 4 * at + own), this.#given);
    return {
      id: this.id,
      session: this.session,
      group: this.group,
      tenant: this.tenant,
      parent: this.#parent,
      keeps: doubles[numbers + 3]!,
      index: doubles[numbers + 4]!,
      worker: this.#worker,
      model: this.#model,
      path: this.#path,
      startedAtMs: doubles[numbers]!,
      ttftMs: doubles[numbers + 1]! < 0 ? null : doubles[numbers + 1]!,
      generationMs: doubles[numbers + 2]!,
      ids,
      logprobs,
      mask,
      versions: this.versions,
      unknownLogprobs: doubles[numbers + 8]! < 0 ? null : doubles[numbers + 8]!,
      promptTokens: doubles[numbers + 5]!,
      outputTokens: doubles[numbers + 6]!,
      cachedTokens: doubles[numbers + 7]!,
      finishReason: this.#finishReason,
      drift: this.#drift,
      ...(this.#isAmbiguous ? { isAmbiguous: true } : {}),
      experts: this.experts,
      ...(this.indexer === undefined ? {} : { indexer: this.indexer }),
      ...(this.#topTokens === null ? {} : { topTokens: this.#topTokens }),
      request: this.#request,
      answer: this.#answer,
      ...(this.#callKey === '' ? {} : { callKey: this.#callKey }),
      ...(this.#isExact ? {} : { isExact: false }),
      ...(this.#texts === undefined ? {} : { texts: this.#texts }),
    };
  }

  outline(): TurnOutline {
    return outlineOf(this.turn());
  }

  /** @returns how many words it is */
  #pack(turn: Turn, memory: PackedMemory): number {
    const { ids, logprobs, mask } = turn;
    const given = this.#given;
    const own = ids.length - given;
    const size = 2 * NUMBERS + 2 * own + ids.length + Math.ceil(own / 4);
    memory.take(this, size);
    const { words, doubles, bytes } = this.slab!;
    let at = this.at / 2;
    doubles[at++] = turn.startedAtMs;
    doubles[at++] = turn.ttftMs ?? -1;
    doubles[at++] = turn.generationMs;
    doubles[at++] = turn.keeps;
    doubles[at++] = turn.index;
    doubles[at++] = turn.promptTokens;
    doubles[at++] = turn.outputTokens;
    doubles[at++] = turn.cachedTokens;
    doubles[at++] = turn.unknownLogprobs ?? -1;
    for (let i = given; i < ids.length; i++) doubles[at++] = logprobs[i]!;
    at *= 2;
    words.set(ids, at);
    at = 4 * (at + ids.length);
    for (let i = given; i < ids.length; i++) bytes[at++] = mask[i]!;
    return size;
  }
}

function givenOf({ ids, logprobs, mask }: Turn): number {
  const sampled = mask.indexOf(1);
  const most = sampled < 0 ? ids.length : sampled;
  let given = 0;
  while (given < most && logprobs[given] === 0) given++;
  return given;
}

const textBytes = (texts: TurnTexts | undefined): number =>
  texts === undefined ? 0 : 100 + (texts.prompt?.length ?? 0) + (texts.answer?.length ?? 0);
