import { hash32 } from '../../kit/hash.ts';
import { type AlignedTokens, alignIds, alignPrompt, alignSampled, alignUnseen } from '../tokens/align.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { exactIds } from '../tree/exact-prefix.ts';
import { findIds } from '../tree/find-text.ts';
import type { TokenForest } from '../tree/forest.ts';
import { type Continued, continuedAt } from '../tree/continued.ts';
import { digestOf } from '../tree/digest.ts';
import type { KnownSession } from '../tree/known-session.ts';
import type { TurnEnd } from '../tree/mark.ts';
import { type Path, lineTo, tokensAt, writeIds } from '../tree/path.ts';
import type { Run } from '../tree/run.ts';
import { type Place, TreeNode, release, tokensWithin } from '../tree/tree-node.ts';
import { unknownCount } from '../logprobs.ts';
import type { Turn } from '../turn.ts';
import { coveringSpans } from '../version-spans.ts';
import type { GivenPrompt } from './read-request.ts';
import type { Sampled } from './sampled.ts';
import { TurnIds } from './turn-id.ts';

export interface CaptureCounts {
  /** Prompts whose tokens were looked up. */
  prompts: number;
  /** Those of which some were known. */
  hits: number;
  promptTokens: number;
  /** Of these so many were known, and not encoded. */
  knownTokens: number;
  turns: number;
  /** Texts given back whose ids are not those that encoding them would have given. */
  retokenized: number;
}

/** A prompt in its tree, held until its answer is here. */
export interface OpenPrompt {
  readonly end: Place;
  readonly tokens: number;
  readonly continued: Continued | null;
}

/** What a request says beside its prompt. */
interface AskedWith {
  /** '' where it names none. */
  readonly session: string;
  readonly addSpecial: boolean;
}

/** A prompt that is being looked up. */
interface Asking {
  readonly root: TreeNode;
  /** '' where the request names none. */
  readonly session: string;
  /** null: the session has no turn in this tree. */
  readonly known: KnownSession | null;
  /** Its text is that of several turns that differ. */
  readonly isAmbiguous?: boolean;
}

/** What a turn is told beside its tokens. */
export type TurnFacts = Pick<
  Turn,
  'group' | 'tenant' | 'worker' | 'model' | 'path' | 'startedAtMs' | 'ttftMs' | 'generationMs'
> & {
  /** '' where the client named none. */
  readonly session: string;
};

/** What is kept of a turn beside its tokens. */
export type KeptBeside = Pick<Turn, 'experts' | 'request' | 'answer'>;

/** Where turns go. */
export interface TurnKeeper {
  put(turn: Turn): void;
  /** Resolves when what was put before is in the store; with false where the store does not take it. */
  stored(): Promise<boolean>;
  /** By the time `put` returns it has copied the tokens of the turn: their memory is used again. */
  readonly copies: boolean;
}

const NOTHING_BESIDE: KeptBeside = { experts: null, request: null, answer: null };

/** Known tokens of prompts, and what was sampled behind them. */
export class Capture {
  readonly counts: CaptureCounts = {
    prompts: 0,
    hits: 0,
    promptTokens: 0,
    knownTokens: 0,
    turns: 0,
    retokenized: 0,
  };
  readonly tokenizer: Tokenizer;
  readonly forest: TokenForest;
  readonly #keeper: TurnKeeper;
  /** For the tokens of one turn. */
  #memory = new ArrayBuffer(0);
  readonly #ids = new TurnIds();

  constructor(tokenizer: Tokenizer, forest: TokenForest, keeper: TurnKeeper) {
    this.tokenizer = tokenizer;
    this.forest = forest;
    this.#keeper = keeper;
  }

  /** Finds the tokens of a prompt and puts the new ones into the tree. The place it answers is held. */
  open(tree: string, prompt: GivenPrompt, { session, addSpecial }: AskedWith): OpenPrompt | Promise<OpenPrompt> {
    const root = this.forest.root(tree);
    const asking: Asking = { root, session, known: this.forest.sessionIfAny(root, session) };
    return typeof prompt === 'string' ? this.#openText(asking, prompt, addSpecial) : this.#openIds(asking, prompt);
  }

  async #openText(asking: Asking, text: string, addSpecial: boolean): Promise<OpenPrompt> {
    const { root, known: session } = asking;
    const rooted = root.hold(0);
    try {
      const options = { endsTurn: false, addSpecial, session };
      const { place, textBytes, rest, isAmbiguous } = await exactIds(this.tokenizer, root, text, options);
      const framing = tokensAt(place) === 0 && addSpecial ? this.tokenizer.before : [];
      const more = Buffer.from(text).subarray(textBytes);
      return this.#grow({ ...asking, isAmbiguous }, place, alignPrompt(this.tokenizer.pieces, rest, more, framing));
    } finally {
      release(rooted);
    }
  }

  #openIds(asking: Asking, ids: Int32Array): OpenPrompt | Promise<OpenPrompt> {
    const found = findIds(asking.root, ids, asking.known);
    const known = tokensAt(found);
    const rest = ids.subarray(known);
    const aligned = alignIds(this.tokenizer.pieces, rest);
    const place = found.node.hold(found.at);
    return aligned === null ? this.#openDecoded(asking, place, rest.slice()) : this.#grow(asking, place, aligned);
  }

  /** What some tokens stand for depends on their neighbours. */
  async #openDecoded(asking: Asking, place: Place, rest: Int32Array): Promise<OpenPrompt> {
    try {
      const text = Buffer.from(await this.tokenizer.decode([...rest]));
      return this.#grow(asking, place, alignPrompt(this.tokenizer.pieces, rest, text, []));
    } catch (error) {
      release(place);
      throw error;
    }
  }

  /** @param place held; it is let go */
  #grow({ session, known: own, isAmbiguous = false }: Asking, place: Place, rest: AlignedTokens): OpenPrompt {
    const { forest, counts } = this;
    const known = tokensAt(place);
    const tokens = known + rest.ids.length;
    counts.prompts++;
    counts.hits += known > 0 ? 1 : 0;
    counts.knownTokens += known;
    counts.promptTokens += tokens;
    const found = continuedAt(place, own, session !== '');
    const continued = found !== null && isAmbiguous ? { ...found, isAmbiguous } : found;
    const end = forest.insert(place, runOf(rest, null, false), forest.versions.newest);
    forest.markPrompt(end, continued?.keeps ?? 0);
    const held = end.node.hold(end.at);
    release(place);
    forest.trim();
    return { end: held, tokens, continued };
  }

  /** Puts what was sampled behind its prompt, and keeps the turn. */
  record(prompt: OpenPrompt, sampled: Sampled, facts: TurnFacts, kept: KeptBeside = NOTHING_BESIDE): Turn {
    const { forest } = this;
    const { end: start, continued } = prompt;
    const { ids, text, spans } = sampled;
    const id = this.#ids.next();
    let version = -1;
    for (const span of spans) version = Math.max(version, forest.versions.ordinalOf(span.version));
    // Not named: it is the age of tokens that counts here, and these are new.
    if (version < 0) version = forest.versions.newest;
    const owner = facts.session === '' ? (continued?.end.owner ?? null) : forest.session(rootOf(start), facts.session);
    const session = facts.session || (continued?.end.session ?? id);
    const index = continued === null ? 0 : continued.end.index + 1;
    const wasStopped = sampled.finishReason !== 'abort' && sampled.finishReason !== '';
    const { pieces } = this.tokenizer;
    const aligned = text === null ? alignUnseen(pieces, ids, wasStopped) : alignSampled(pieces, ids, text, wasStopped);
    const run = runOf(aligned, sampled.logprobs, true);
    const from = tokensAt(start);
    const keeps = continued?.keeps ?? 0;
    const parent = continued?.end ?? null;
    const digest = digestOf(sampled.logprobs, hash32(`${parent?.digest} ${keeps} ${JSON.stringify(spans)}`));
    if (owner !== null && parent !== null && parent.owner !== null && parent.owner !== owner)
      parent.owner.isForked = true;
    const endOf = (shared: number): TurnEnd => {
      const own = shared === 0 ? null : (sampled.logprobs?.slice(0, shared) ?? null);
      const logprobs = { hasLogprobs: sampled.logprobs !== null, own };
      const line = { parent, keeps, digest, isAmbiguous: continued?.isAmbiguous === true };
      return { turn: id, session, owner, index, tokens: from + ids.length, from, ...logprobs, ...line };
    };
    // Its client goes on behind the text that it got: where that is the end of a token, it is one of the tree too.
    const seen = seenOf(aligned);
    if (seen > 0) {
      const inserted = forest.insert(start, part(run, 0, seen), version);
      const visible = inserted.node.hold(inserted.at);
      const hidden = forest.insert(visible, part(run, seen, ids.length), version);
      const end = endOf(hidden.shared > 0 ? seen + hidden.shared : inserted.shared);
      forest.mark(visible, 'seen', end);
      release(visible);
      forest.mark(hidden, 'turn', end, aligned.hiddenBytes);
    } else {
      const whole = forest.insert(start, run, version);
      if (ids.length > 0) forest.mark(whole, 'turn', endOf(whole.shared), aligned.hiddenBytes);
    }
    this.counts.turns++;
    const path = this.#pathOf(prompt, sampled);
    const turn = turnOf({ prompt, sampled, path, facts, kept, id, session, index });
    this.#keeper.put(turn);
    forest.trim();
    return turn;
  }

  /** The tokens that a turn adds. */
  #pathOf({ end, tokens, continued }: OpenPrompt, { ids, logprobs }: Sampled): Path {
    const keeps = continued?.keeps ?? 0;
    const start = tokens - keeps;
    const length = start + ids.length;
    // In one piece: memory that V8 does not look into costs by the piece.
    if (!this.#keeper.copies) this.#memory = new ArrayBuffer(13 * length);
    else if (this.#memory.byteLength < 13 * length) this.#memory = new ArrayBuffer(26 * length);
    const path = {
      logprobs: new Float64Array(this.#memory, 0, length),
      ids: new Int32Array(this.#memory, 8 * length, length),
      mask: new Uint8Array(this.#memory, 12 * length, length),
    };
    if (this.#keeper.copies) {
      path.logprobs.fill(0);
      path.mask.fill(0, 0, start);
    }
    writeIds(end, keeps, path.ids);
    path.ids.set(ids, start);
    if (logprobs !== null) path.logprobs.set(logprobs, start);
    else path.logprobs.fill(NaN, start);
    path.mask.fill(1, start);
    return path;
  }

  /** The tokens of a text: those that were sampled, where it was; what stopped its last turn is among them. */
  async tokensOf(tree: string, text: string, session: string): Promise<Path & { isAmbiguous: boolean }> {
    const root = this.forest.rootIfAny(tree) ?? new TreeNode();
    const own = this.forest.sessionIfAny(root, session);
    const found = await exactIds(this.tokenizer, root, text, { endsTurn: true, addSpecial: true, session: own });
    const { place, rest } = found;
    this.forest.touch(place);
    const continued = continuedAt(place, own, session !== '');
    const known = lineTo(place, continued);
    release(place);
    // Here, as it costs an encoding: what asks for tokens is about to train on them.
    const again = await this.tokenizer.encode(text, true);
    const isSame = again.every((id, i) => id === (known.ids[i] ?? rest[i - known.ids.length]));
    if (!isSame) this.counts.retokenized++;
    const length = known.ids.length + rest.length;
    let isAmbiguous = continued !== null && (continued.isAmbiguous || found.isAmbiguous);
    for (let turn = continued?.end ?? null; turn !== null; turn = turn.parent) isAmbiguous ||= turn.isAmbiguous;
    return {
      ids: joined(new Int32Array(length), known.ids, rest),
      logprobs: joined(new Float64Array(length), known.logprobs, []),
      mask: joined(new Uint8Array(length), known.mask, []),
      isAmbiguous,
    };
  }
}

/** The root of a place's tree. */
function rootOf({ node }: Place): TreeNode {
  let root = node;
  while (root.parent !== null) root = root.parent;
  return root;
}

/** @param both as long as both together */
function joined<A extends Int32Array | Float64Array | Uint8Array>(
  both: A,
  a: ArrayLike<number>,
  b: ArrayLike<number>,
): A {
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** How many of the tokens are what the client saw of an answer, where it did not see all of them and that is the end of one; 0. */
function seenOf({ ids, spelling, ends, text, hiddenBytes }: AlignedTokens): number {
  if (spelling !== null) return 0;
  const visible = text.length - hiddenBytes;
  const seen = tokensWithin(ends, visible);
  return seen > 0 && seen < ids.length && ends[seen - 1] === visible ? seen : 0;
}

/** Not of spelled ones: those are seen whole. */
function part({ ids, ends, text, logprobs, isSampled }: Run, from: number, to: number): Run {
  const cut = from === 0 ? 0 : ends[from - 1]!;
  return {
    ids: ids.subarray(from, to),
    spelling: null,
    ends: ends.subarray(from, to).map((end) => end - cut),
    text: text.subarray(cut, ends[to - 1]),
    logprobs: logprobs?.subarray(from, to) ?? null,
    isSampled,
  };
}

const runOf = (
  { ids, spelling, ends, text }: AlignedTokens,
  logprobs: Float64Array | null,
  isSampled: boolean,
): Run => ({ ids, spelling, ends, text, logprobs, isSampled });

interface TurnParts extends Pick<Turn, 'id' | 'session' | 'index'> {
  readonly prompt: OpenPrompt;
  readonly sampled: Sampled;
  readonly path: Path;
  readonly facts: TurnFacts;
  readonly kept: KeptBeside;
}

function turnOf({ prompt, sampled, path, facts, kept, id, session, index }: TurnParts): Turn {
  const { tokens, continued } = prompt;
  const { ids, logprobs, mask } = path;
  const start = ids.length - sampled.ids.length;
  return {
    id,
    session,
    group: facts.group,
    tenant: facts.tenant,
    parent: continued?.end.turn ?? null,
    keeps: continued?.keeps ?? 0,
    ...(continued?.isAmbiguous === true ? { isAmbiguous: true } : {}),
    index,
    worker: facts.worker,
    model: facts.model,
    path: facts.path,
    startedAtMs: facts.startedAtMs,
    ttftMs: facts.ttftMs,
    generationMs: facts.generationMs,
    ids,
    logprobs,
    mask,
    versions: coveringSpans(sampled.spans, sampled.ids.length, start),
    unknownLogprobs: unknownCount(logprobs, mask),
    promptTokens: sampled.promptTokens < 0 ? tokens : sampled.promptTokens,
    outputTokens: sampled.ids.length,
    cachedTokens: sampled.cachedTokens,
    finishReason: sampled.finishReason,
    drift: null,
    experts: kept.experts,
    request: kept.request,
    answer: kept.answer,
  };
}
