import type { KnownSession } from './known-session.ts';
import type { TreeNode } from './tree-node.ts';

/** The end of a turn. */
export interface TurnEnd {
  readonly turn: string;
  readonly session: string;
  /** The ends of its session; null: the client named no session. */
  readonly owner: KnownSession | null;
  readonly index: number;
  /** Tokens of the trajectory up to here. */
  readonly tokens: number;
  /** Tokens of it before those that were sampled in this turn. */
  readonly from: number;
  /** False: the engine returned none. */
  readonly hasLogprobs: boolean;
  /** This turn's logprobs of leading tokens that another turn sampled before. */
  readonly own: Float64Array | null;
  /** The turn that it continues, and how many tokens of the trajectory up to that turn's end it keeps. */
  readonly parent: TurnEnd | null;
  readonly keeps: number;
  /** The same for ends whose trajectories have the same logprobs and versions. */
  readonly digest: number;
  /** `parent` was chosen among different turns. */
  readonly isAmbiguous: boolean;
  /** Its stream was truncated, or its generation aborted. */
  readonly isCut: boolean;
}

/** Ids of turns are in order of time as text. */
export const isNewer = (end: TurnEnd, than: TurnEnd | null): boolean => than === null || end.turn > than.turn;

/**
 * `turn`: the end of a turn. `seen`: the end of what its client saw of it. Other tokens may follow there, whatever they are.
 * `prompt`: the end of a prompt; what follows may be a part of the same word, so it only counts for the same prompt.
 */
export type MarkKind = 'turn' | 'seen' | 'prompt';

/** The object, the list it is in, and an end with the names in it and its place in tables, as measured on Node 24. */
const MARK_BYTES = 150;
const TURN_END_BYTES = 400;
/** A typed array beside its data. */
const ARRAY_BYTES = 300;

/** So many sessions have an end at one place. More than that lose the oldest one. */
const MAX_SESSIONS = 1_024;

/** A place where something ended: a prompt, or the turns of any number of sessions that sampled the same tokens. */
export class Mark {
  node: TreeNode;
  readonly kind: MarkKind;
  /** Its position in the node, in tokens. */
  at: number;
  /** Bytes of text before it that the engine left out of its answer (what stopped it). */
  readonly hiddenBytes: number;
  /** Of what ended here last. */
  stamp: number;
  /** Of a prompt: so many of its tokens are of the turn that it continues, and of those before. */
  keeps = 0;
  /** Turns with different logprobs or versions ended here. */
  isMixed = false;
  /** Of sessions that no request named: the newest. */
  #unnamed: TurnEnd | null = null;
  /** Of one session, or by session, the one written longest ago first. */
  #named: TurnEnd | Map<string, TurnEnd> | null = null;
  #newestNamed: TurnEnd | null = null;
  /** Sessions that sampled the same tokens again, with different logprobs or versions. */
  #mixed: Set<string> | null = null;

  constructor(node: TreeNode, at: number, kind: MarkKind, hiddenBytes: number, stamp: number) {
    this.node = node;
    this.at = at;
    this.kind = kind;
    this.hiddenBytes = hiddenBytes;
    this.stamp = stamp;
  }

  /** @returns the end that it takes the place of */
  put(end: TurnEnd): TurnEnd | null {
    const { newest } = this;
    if (newest !== null && newest.digest !== end.digest) this.isMixed = true;
    if (end.owner === null) {
      // No request can name its session: of these only the newest counts.
      const before = this.#unnamed;
      this.#unnamed = end;
      return before;
    }
    const before = this.endOf(end.session);
    if (before !== null && before.digest !== end.digest) (this.#mixed ??= new Set()).add(end.session);
    if (isNewer(end, this.#newestNamed)) this.#newestNamed = end;
    if (this.#named === null || this.#named === before) {
      this.#named = end;
      return before;
    }
    if (!(this.#named instanceof Map)) this.#named = new Map([[this.#named.session, this.#named]]);
    this.#named.delete(end.session);
    this.#named.set(end.session, end);
    if (this.#named.size <= MAX_SESSIONS) return before;
    const oldest = this.#named.values().next().value!;
    this.#named.delete(oldest.session);
    this.#mixed?.delete(oldest.session);
    return oldest;
  }

  /** Of a session that requests name. */
  endOf(session: string): TurnEnd | null {
    if (this.#named instanceof Map) return this.#named.get(session) ?? null;
    return this.#named?.session === session ? this.#named : null;
  }

  /** What a request without a session continues: the newest turn of those that had none either, else the newest of all. */
  get unnamed(): TurnEnd | null {
    return this.#unnamed ?? this.newest;
  }

  /** null for prompts. */
  get newest(): TurnEnd | null {
    const named = this.#newestNamed;
    return named !== null && isNewer(named, this.#unnamed) ? named : this.#unnamed;
  }

  /** Whether turns of this session with different logprobs or versions ended here. */
  isMixedIn(session: string): boolean {
    return this.#mixed?.has(session) === true;
  }

  *ends(): Generator<TurnEnd, void, void> {
    if (this.#unnamed !== null) yield this.#unnamed;
    if (this.#named instanceof Map) yield* this.#named.values();
    else if (this.#named !== null) yield this.#named;
  }

  /** Never less than what it takes. */
  get bytes(): number {
    // What the mark at the end of the whole turn counts is not counted at the end of what was seen of it.
    if (this.kind === 'seen') return MARK_BYTES + (this.#named instanceof Map ? 100 * this.#named.size : 0);
    let bytes = MARK_BYTES;
    for (const { own } of this.ends()) bytes += TURN_END_BYTES + (own === null ? 0 : ARRAY_BYTES + own.byteLength);
    return bytes;
  }
}
