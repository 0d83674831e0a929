import { type AlignedTokens, alignIds, alignPrompt, alignSampled } from '../tokens/align.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { exactIds } from '../tree/exact-prefix.ts';
import { findIds, tokensWithin } from '../tree/find-text.ts';
import type { TokenForest } from '../tree/forest.ts';
import { type Continued, type Path, continuedAt, ownPathTo, tokensAt, writePath } from '../tree/path.ts';
import { type Place, type Run, TreeNode, release } from '../tree/tree-node.ts';
import type { Turn } from '../turn.ts';
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
  readonly #keep: (turn: Turn) => void;
  readonly #ids = new TurnIds();

  constructor(tokenizer: Tokenizer, forest: TokenForest, keep: (turn: Turn) => void) {
    this.tokenizer = tokenizer;
    this.forest = forest;
    this.#keep = keep;
  }

  /** Finds the tokens of a prompt and puts the new ones into the tree. The place it answers is held. */
  open(tree: string, prompt: GivenPrompt, addSpecial: boolean): OpenPrompt | Promise<OpenPrompt> {
    const root = this.forest.root(tree);
    return typeof prompt === 'string' ? this.#openText(root, prompt, addSpecial) : this.#openIds(root, prompt);
  }

  async #openText(root: TreeNode, text: string, addSpecial: boolean): Promise<OpenPrompt> {
    const rooted = root.hold(0);
    try {
      const { place, textBytes, rest } = await exactIds(this.tokenizer, root, text, { endsTurn: false, addSpecial });
      const framing = tokensAt(place) === 0 && addSpecial ? this.tokenizer.before : [];
      const more = Buffer.from(text).subarray(textBytes);
      return this.#grow(place, alignPrompt(this.tokenizer.pieces, rest, more, framing));
    } finally {
      release(rooted);
    }
  }

  #openIds(root: TreeNode, ids: Int32Array): OpenPrompt | Promise<OpenPrompt> {
    const found = findIds(root, ids);
    const known = tokensAt(found);
    const rest = ids.subarray(known);
    const aligned = alignIds(this.tokenizer.pieces, rest);
    const place = found.node.hold(found.at);
    return aligned === null ? this.#openDecoded(place, rest) : this.#grow(place, aligned);
  }

  /** What some tokens stand for depends on their neighbours. */
  async #openDecoded(place: Place, rest: Int32Array): Promise<OpenPrompt> {
    try {
      const text = Buffer.from(await this.tokenizer.decode([...rest]));
      return this.#grow(place, alignPrompt(this.tokenizer.pieces, rest, text, []));
    } catch (error) {
      release(place);
      throw error;
    }
  }

  /** @param place held; it is let go */
  #grow(place: Place, rest: AlignedTokens): OpenPrompt {
    const { forest, counts } = this;
    const known = tokensAt(place);
    const tokens = known + rest.ids.length;
    counts.prompts++;
    counts.hits += known > 0 ? 1 : 0;
    counts.knownTokens += known;
    counts.promptTokens += tokens;
    const continued = continuedAt(place);
    const end = forest.insert(place, { ...rest, logprobs: null, isSampled: false }, forest.versions.newest);
    forest.mark(end, 'prompt');
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
    const version = Math.max(-1, ...spans.map((span) => forest.versions.ordinalOf(span.version)));
    const session = facts.session || (continued?.session ?? id);
    const index = continued === null ? 0 : continued.index + 1;
    const aligned = alignSampled(this.tokenizer.pieces, ids, text);
    const run: Run = { ...aligned, logprobs: sampled.logprobs, isSampled: true };
    const visible = aligned.text.length - aligned.hiddenBytes;
    const seen = tokensWithin(aligned.ends, visible);
    const from = tokensAt(start);
    const turnEnd = { turn: id, session, index, tokens: from + ids.length, from };
    const own = (count: number): Float64Array | null =>
      count === 0 ? null : (sampled.logprobs?.slice(0, count) ?? null);
    let end: Place = start;
    let shared = 0;
    // Its client goes on behind the text that it got: where that is the end of a token, it is one of the tree too.
    if (seen > 0 && seen < ids.length && aligned.ends[seen - 1] === visible) {
      ({ shared, ...end } = forest.insert(end, part(run, 0, seen), version));
      forest.mark(end, 'seen', { ...turnEnd, own: own(shared) });
      const hidden = forest.insert(end, part(run, seen, ids.length), version);
      if (hidden.shared > 0) shared = seen + hidden.shared;
      end = hidden;
    } else ({ shared, ...end } = forest.insert(end, run, version));
    if (ids.length > 0) {
      forest.mark(end, 'turn', { ...turnEnd, own: own(shared) }, aligned.hiddenBytes);
    }
    this.counts.turns++;
    const turn = turnOf(prompt, sampled, { ...facts, ...kept, id, session, index });
    this.#keep(turn);
    forest.trim();
    return turn;
  }

  /** The tokens of a text: those that were sampled, where it was; what stopped its last turn is among them. */
  async tokensOf(tree: string, text: string): Promise<Path> {
    const root = this.forest.rootIfAny(tree) ?? new TreeNode();
    const { place, rest } = await exactIds(this.tokenizer, root, text, { endsTurn: true, addSpecial: true });
    this.forest.touch(place);
    const known = ownPathTo(place);
    release(place);
    // Here, as it costs an encoding: what asks for tokens is about to train on them.
    const again = await this.tokenizer.encode(text, true);
    const isSame = again.every((id, i) => id === (known.ids[i] ?? rest[i - known.ids.length]));
    if (!isSame) this.counts.retokenized++;
    const length = known.ids.length + rest.length;
    return {
      ids: joined(new Int32Array(length), known.ids, rest),
      logprobs: joined(new Float64Array(length), known.logprobs, []),
      mask: joined(new Uint8Array(length), known.mask, []),
    };
  }
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

function part({ ids, ends, text, logprobs, isSampled }: Run, from: number, to: number): Run {
  const cut = from === 0 ? 0 : ends[from - 1]!;
  return {
    ids: ids.subarray(from, to),
    ends: ends.subarray(from, to).map((end) => end - cut),
    text: text.subarray(cut, ends[to - 1]),
    logprobs: logprobs?.subarray(from, to) ?? null,
    isSampled,
  };
}

function turnOf(
  { end, tokens, continued }: OpenPrompt,
  sampled: Sampled,
  facts: TurnFacts & KeptBeside & Pick<Turn, 'id' | 'index'>,
): Turn {
  const keeps = continued?.keeps ?? 0;
  const { ids: sampledIds, logprobs: sampledLogprobs } = sampled;
  const start = tokens - keeps;
  const length = start + sampledIds.length;
  // In one piece: memory that V8 does not look into costs by the piece.
  const memory = new ArrayBuffer(13 * length);
  const logprobs = new Float64Array(memory, 0, length);
  const ids = new Int32Array(memory, 8 * length, length);
  const mask = new Uint8Array(memory, 12 * length, length);
  writePath(end, keeps, { ids, logprobs, mask });
  ids.set(sampledIds, start);
  if (sampledLogprobs !== null) logprobs.set(sampledLogprobs, start);
  mask.fill(1, start);
  return {
    ...facts,
    parent: continued?.turn ?? null,
    keeps,
    ids,
    logprobs,
    mask,
    versions: sampled.spans.map((span) => ({ version: span.version, from: start + span.start, to: start + span.end })),
    promptTokens: sampled.promptTokens < 0 ? tokens : sampled.promptTokens,
    outputTokens: sampledIds.length,
    cachedTokens: sampled.cachedTokens,
    finishReason: sampled.finishReason,
    drift: null,
  };
}
