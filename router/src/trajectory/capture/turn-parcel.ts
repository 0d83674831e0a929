import { copyTo } from '../../kit/bytes.ts';
import type { TurnFacts } from './capture.ts';

/** A turn whose answer is here, as the event loop knows it. */
export interface EndedTurn {
  /** The number of its open capture; 0: there is none, `request` says what was asked. */
  readonly id: number;
  readonly request: Uint8Array | null;
  readonly isStream: boolean;
  /** False: more of its answer follows, with the same number. Choices that have ended are turns now. */
  readonly isLast: boolean;
  /** Empty where it goes beside the parcel, in pieces. */
  readonly answer: Uint8Array;
  /** What its routed experts are known by; null: it had none. */
  readonly expertsKey: number | null;
  /** `model`: as the router knows it; the request's own word comes first. */
  readonly facts: TurnFacts;
}

/** Turns in memory that both threads see. */
export interface Parcel {
  readonly crate: SharedArrayBuffer;
  /** Where the last turn in it ends. */
  readonly end: number;
  /** The answer of its only turn, in pieces: it was too large to be packed. */
  readonly answer?: readonly Uint8Array[];
  /** Who sent it waits until its turns are in the store. */
  readonly isAwaited?: boolean;
}

/** So many turns of a few KB travel together. */
const CRATE_BYTES = 262_144;
/** Crates that are used again and again. While the thread is further behind, each is made for one parcel. */
const MAX_CRATES = 16;

/** The first word of a crate: 1 while a parcel is made or read in it. */
const BUSY = 0;
const FIRST_TURN = 8;

// What stands before the bytes of a turn: words, then doubles.
const FLAGS = 0;
const REQUEST_AT = 1;
const REQUEST_BYTES = 2;
const ANSWER_AT = 3;
const ANSWER_BYTES = 4;
const TEXT_BYTES = 5;
const TEXTS = 8;
const WORDS = 14;
// Numbers of requests outgrow 31 bits within weeks.
const ID = 0;
const EXPERTS = 1;
const TIMES = 2;
const TICKET = 5;
const DOUBLES = 6;
const HEAD_BYTES = 4 * WORDS + 8 * DOUBLES;
/** For the length of a text: it is that of the turn before. */
const AS_BEFORE = -1;
const NO_REQUEST = -1;
const STREAM = 1;
const LAST = 2;
const PROOF = 4;

const aligned = (bytes: number): number => (bytes + 7) & ~7;
/** The first place from `at` on that lies to words of eight bytes as `bytes` do: others are copied to shared memory byte by byte. */
const placeFor = (bytes: Uint8Array, at: number): number => at + ((bytes.byteOffset - at) & 7);

class Crate {
  readonly memory: SharedArrayBuffer;
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly bytes: Buffer;

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory;
    this.words = new Int32Array(memory);
    this.doubles = new Float64Array(memory);
    this.bytes = Buffer.from(memory);
  }
}

/** Packs turns for the other thread: no object of theirs crosses over, and no memory is made for them. */
export class TurnPacker {
  readonly #crates: Crate[] = [];
  readonly #before = Array.from({ length: TEXTS }, () => '');
  #crate: Crate | null = null;
  #end = FIRST_TURN;

  /** @returns false: it has no room for this turn; take what it has first */
  add(turn: EndedTurn): boolean {
    const { request, answer, facts, expertsKey } = turn;
    const { asked } = facts;
    const { session, group, tenant, worker, model, path } = facts;
    const texts = [session, group, tenant, worker, model, path, asked.before, asked.stale];
    // Seven before each of them, at most.
    let size = HEAD_BYTES + 14 + (request?.length ?? 0) + answer.length;
    // A letter has three bytes at most for each unit that it has here.
    for (const text of texts) size += 3 * text.length;
    size = aligned(size);
    if (this.#crate !== null && this.#end + size > this.#crate.bytes.length) return false;
    const { words, doubles, bytes } = (this.#crate ??= this.#open(FIRST_TURN + size));
    const start = this.#end;
    const word = start / 4;
    words[word + FLAGS] = (turn.isStream ? STREAM : 0) | (turn.isLast ? LAST : 0) | (asked.isProof ? PROOF : 0);
    const double = (start + 4 * WORDS) / 8;
    doubles[double + ID] = turn.id;
    doubles[double + EXPERTS] = expertsKey ?? -1;
    doubles[double + TIMES] = facts.startedAtMs;
    doubles[double + TIMES + 1] = facts.ttftMs ?? -1;
    doubles[double + TIMES + 2] = facts.generationMs;
    doubles[double + TICKET] = asked.ticket;
    let at = start + HEAD_BYTES;
    for (let i = 0; i < TEXTS; i++) {
      const text = texts[i]!;
      const isAsBefore = text === this.#before[i];
      words[word + TEXT_BYTES + i] = isAsBefore ? AS_BEFORE : bytes.write(text, at);
      if (isAsBefore) continue;
      at += words[word + TEXT_BYTES + i]!;
      this.#before[i] = text;
    }
    words[word + REQUEST_BYTES] = request?.length ?? NO_REQUEST;
    if (request !== null) {
      at = placeFor(request, at);
      copyTo(bytes, at, request);
      words[word + REQUEST_AT] = at;
      at += request.length;
    }
    at = placeFor(answer, at);
    copyTo(bytes, at, answer);
    words[word + ANSWER_AT] = at;
    words[word + ANSWER_BYTES] = answer.length;
    this.#end = aligned(at + answer.length);
    return true;
  }

  /** What was added since; null: nothing. */
  take(): Parcel | null {
    if (this.#crate === null) return null;
    const parcel = { crate: this.#crate.memory, end: this.#end };
    this.#crate = null;
    this.#end = FIRST_TURN;
    this.#before.fill('');
    return parcel;
  }

  #open(bytes: number): Crate {
    let crate = bytes > CRATE_BYTES ? undefined : this.#crates.find(({ words }) => Atomics.load(words, BUSY) === 0);
    if (crate === undefined) {
      crate = new Crate(new SharedArrayBuffer(Math.max(bytes, CRATE_BYTES)));
      if (bytes <= CRATE_BYTES && this.#crates.length < MAX_CRATES) this.#crates.push(crate);
    }
    Atomics.store(crate.words, BUSY, 1);
    return crate;
  }
}

/** The turns of a parcel, in their order. Their bytes are valid until the next one is asked for. */
export function* unpack({ crate, end, answer }: Parcel): Generator<EndedTurn, void, void> {
  const { words, doubles, bytes } = new Crate(crate);
  const texts = Array.from({ length: TEXTS }, () => '');
  try {
    for (let start = FIRST_TURN; start < end;) {
      const word = start / 4;
      let at = start + HEAD_BYTES;
      for (let i = 0; i < TEXTS; i++) {
        const length = words[word + TEXT_BYTES + i]!;
        if (length === AS_BEFORE) continue;
        texts[i] = bytes.toString('utf8', at, at + length);
        at += length;
      }
      const [session, group, tenant, worker, model, path, before, stale] = texts as [
        string,
        string,
        string,
        string,
        string,
        string,
        string,
        string,
      ];
      const flags = words[word + FLAGS]!;
      const double = (start + 4 * WORDS) / 8;
      const requestBytes = words[word + REQUEST_BYTES]!;
      const requestAt = words[word + REQUEST_AT]!;
      const answerAt = words[word + ANSWER_AT]!;
      const answerEnd = answerAt + words[word + ANSWER_BYTES]!;
      const expertsKey = doubles[double + EXPERTS]!;
      yield {
        id: doubles[double + ID]!,
        request: requestBytes === NO_REQUEST ? null : bytes.subarray(requestAt, requestAt + requestBytes),
        isStream: (flags & STREAM) !== 0,
        isLast: (flags & LAST) !== 0,
        answer: answer === undefined ? bytes.subarray(answerAt, answerEnd) : Buffer.concat(answer),
        expertsKey: expertsKey < 0 ? null : expertsKey,
        facts: {
          session,
          group,
          tenant,
          worker,
          model,
          path,
          startedAtMs: doubles[double + TIMES]!,
          ttftMs: doubles[double + TIMES + 1]! < 0 ? null : doubles[double + TIMES + 1]!,
          generationMs: doubles[double + TIMES + 2]!,
          asked: { before, isProof: (flags & PROOF) !== 0, stale, ticket: doubles[double + TICKET]! },
        },
      };
      start = aligned(answerEnd);
    }
  } finally {
    Atomics.store(words, BUSY, 0);
  }
}
