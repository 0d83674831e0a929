import { type AlignedTokens, alignIds, alignPrompt, alignSampled, alignUnseen } from '../tokens/align.ts';
import type { TurnWriter } from '../store/writer.ts';
import { joinedIds } from '../tokens/ids.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { exactIds } from '../tree/exact-prefix.ts';
import { findIds } from '../tree/find-text.ts';
import type { TokenForest } from '../tree/forest.ts';
import { type Continued, continuedAt, mayDiffer } from '../tree/continued.ts';
import type { KnownSession } from '../tree/known-session.ts';
import { type Path, idsTo, lineTo, textFrom, tokensAt } from '../tree/path.ts';
import { type Place, TreeNode, release } from '../tree/tree-node.ts';
import type { Drift, Turn } from '../../shared/turn.ts';
import { tokenFields } from '../turn-tokens.ts';
import { type AskedVersion, coveringSpans } from '../../../weights/version-spans.ts';
import { type LostTurns, Restore } from './restore.ts';
import { placeTurn, runOf } from './place-turn.ts';
import { textsOf, wasStopped } from './turn-texts.ts';
import type { GivenPrompt } from '../../../generation/asked.ts';
import type { Sampled } from '../read/sampled.ts';

export interface CaptureCounts {
  /** Prompts whose tokens were looked up. */
  prompts: number;
  /** Prompts with known tokens. */
  hits: number;
  promptTokens: number;
  /** Known tokens, which were not encoded. */
  knownTokens: number;
  turns: number;
  /** Returned texts whose ids differ from those of encoding them. */
  retokenized: number;
  /** Prompts of sessions with turns that are not on record any more. */
  lost: number;
}

/** A prompt in its tree, held until its response has come. */
export interface OpenPrompt {
  readonly end: Place;
  readonly tokens: number;
  readonly continued: Continued | null;
  /** It came as text. */
  readonly isText: boolean;
  readonly drift: Drift | null;
}

/** Facts of a request beside its prompt. */
interface AskedWith {
  readonly tenant: string;
  /** '' where it names none. */
  readonly session: string;
  readonly addSpecial: boolean;
  /** A stream of its session that it may continue is still in flight. */
  readonly isEarly?: boolean;
}

/** A prompt that is being looked up. */
interface Asking {
  readonly root: TreeNode;
  /** '' where the request names none. */
  readonly session: string;
  /** null: the session has no turn in this tree. */
  readonly known: KnownSession | null;
  readonly isText?: boolean;
  /** Several different turns have its text. */
  readonly isAmbiguous?: boolean;
  /** After its known tokens it may have other tokens than its session sampled. */
  readonly isInexact?: boolean;
}

/** The tokens of a text. */
export interface TextTokens extends Path {
  readonly isAmbiguous: boolean;
  readonly drift: Drift | null;
}

/** Facts of a turn beside its tokens. */
export type TurnFacts = Pick<
  Turn,
  'group' | 'tenant' | 'worker' | 'model' | 'path' | 'startedAtMs' | 'ttftMs' | 'generationMs'
> & {
  /** '' where the client named none. */
  readonly session: string;
  readonly asked: AskedVersion;
};

/** The stored facts of a turn beside its tokens. */
type KeptBeside = Pick<Turn, 'experts' | 'indexer' | 'request' | 'answer'>;

/** The known tokens of prompts, and the tokens that were sampled after them. */
export class KnownTokens {
  readonly counts: CaptureCounts = {
    prompts: 0,
    hits: 0,
    promptTokens: 0,
    knownTokens: 0,
    turns: 0,
    retokenized: 0,
    lost: 0,
  };
  readonly tokenizer: Tokenizer;
  readonly forest: TokenForest;
  readonly restore: Restore;
  readonly #writer: TurnWriter;

  constructor(tokenizer: Tokenizer, forest: TokenForest, writer: TurnWriter, lost: LostTurns) {
    this.tokenizer = tokenizer;
    this.forest = forest;
    this.#writer = writer;
    this.restore = new Restore(tokenizer, forest, writer, lost);
  }

  /** Finds the tokens of a prompt and adds the new ones to the tree. The returned place is held. */
  async open(tree: string, prompt: GivenPrompt, asked: AskedWith): Promise<OpenPrompt> {
    const { tenant, session, addSpecial, isEarly = false } = asked;
    await this.restore.wanted(tree, tenant, session);
    const root = this.forest.root(tree);
    const asking: Asking = { root, session, known: this.forest.sessionIfAny(root, session), isInexact: isEarly };
    try {
      return await (typeof prompt === 'string'
        ? this.#openText(asking, prompt, addSpecial)
        : this.#openIds(asking, prompt));
    } finally {
      // Also if the prompt is refused: the turns of its session were loaded.
      this.forest.trim();
    }
  }

  async #openText(asking: Asking, text: string, addSpecial: boolean): Promise<OpenPrompt> {
    const { root, known: session } = asking;
    const rooted = root.hold(0);
    try {
      const options = { endsTurn: false, addSpecial, session };
      const { place, textBytes, rest, isAmbiguous } = await exactIds(this.tokenizer, root, text, options);
      const framing = tokensAt(place) === 0 && addSpecial ? this.tokenizer.before : [];
      const bytes = Buffer.from(text);
      const isInexact = asking.isInexact === true || (session !== null && mayDiffer(place, session, bytes, textBytes));
      const aligned = alignPrompt(this.tokenizer.pieces, rest, bytes.subarray(textBytes), framing);
      return this.#grow({ ...asking, isText: true, isAmbiguous, isInexact }, place, aligned);
    } finally {
      release(rooted);
    }
  }

  async #openIds(asking: Asking, ids: Int32Array): Promise<OpenPrompt> {
    const found = findIds(asking.root, ids, asking.known);
    const known = tokensAt(found);
    const rest = ids.subarray(known);
    const { pieces, decode } = this.tokenizer;
    const place = found.node.hold(found.at);
    try {
      // The text of some tokens depends on their neighbours.
      const aligned = alignIds(pieces, rest) ?? alignPrompt(pieces, rest, Buffer.from(await decode([...rest])), []);
      return this.#grow(asking, place, aligned);
    } catch (error) {
      release(place);
      throw error;
    }
  }

  /** @param place held; it is released */
  #grow(
    { session, known: own, isText = false, isAmbiguous = false, isInexact = false }: Asking,
    place: Place,
    rest: AlignedTokens,
  ): OpenPrompt {
    const { forest, counts } = this;
    const known = tokensAt(place);
    const tokens = known + rest.ids.length;
    counts.prompts++;
    counts.hits += known > 0 ? 1 : 0;
    counts.knownTokens += known;
    counts.promptTokens += tokens;
    const found = continuedAt(place, own, session !== '');
    const isLost = isLostIn(own, found);
    // Turns of other sessions do not replace the lost ones.
    const isOther = isLost && found?.end.owner !== own;
    const continued = found === null || isOther ? null : { ...found, isAmbiguous: found.isAmbiguous || isAmbiguous };
    if (isLost) counts.lost++;
    const end = forest.insert(place, runOf(rest, null, false), forest.versions.newest);
    forest.markPrompt(end, continued?.keeps ?? 0);
    const held = end.node.hold(end.at);
    release(place);
    let drift: Drift | null = isInexact ? { kind: 'text', at: known } : null;
    if (isLost) drift = { kind: 'lost', at: continued?.keeps ?? 0 };
    return { end: held, tokens, continued, isText, drift };
  }

  /** Adds the sampled tokens after their prompt, and stores the turn. */
  record(prompt: OpenPrompt, sampled: Sampled, facts: TurnFacts, kept: KeptBeside): Turn {
    const { forest } = this;
    const { end: start, continued } = prompt;
    const { ids, text, spans } = sampled;
    const id = this.#writer.ids.next(continued?.end.turn ?? null);
    // Without a version: eviction goes by the age of tokens, and these are new.
    const version = forest.versions.newestOf(spans) ?? forest.versions.newest;
    const owner = facts.session === '' ? (continued?.end.owner ?? null) : forest.session(rootOf(start), facts.session);
    const session = facts.session || (continued?.end.session ?? id);
    const index = continued === null ? 0 : continued.end.index + 1;
    const isStopped = wasStopped(sampled.finishReason);
    const { pieces } = this.tokenizer;
    const aligned = text === null ? alignUnseen(pieces, ids, isStopped) : alignSampled(pieces, ids, text, isStopped);
    const versions = coveringSpans(sampled, 0, facts.asked);
    const { logprobs, finishReason } = sampled;
    const line = { id, session, owner, index, continued, versions, logprobs, finishReason };
    placeTurn(forest, start, aligned, line, version);
    this.counts.turns++;
    const keeps = continued?.keeps ?? 0;
    const given = idsTo(start, keeps);
    const texts = textsOf(this.tokenizer, {
      given: prompt.isText ? { ids: given, text: textFrom(start, keeps) } : null,
      sampled: { ids, text, wasStopped: isStopped },
    });
    const { asked, ...others } = facts;
    const turn: Turn = {
      ...others,
      id,
      session,
      parent: continued?.end.turn ?? null,
      keeps,
      ...(continued?.isAmbiguous === true ? { isAmbiguous: true } : {}),
      index,
      ...tokenFields(given, sampled, asked),
      promptTokens: sampled.promptTokens ?? prompt.tokens,
      drift: prompt.drift,
      ...(texts === undefined ? {} : { texts }),
      ...kept,
    };
    this.#writer.put(turn);
    this.#writer.expectVersions(turn, facts.asked.ticket);
    forest.trim();
    return turn;
  }

  /** Stores a recorded turn again, with all of its response. */
  complete(turn: Turn, answer: Uint8Array): void {
    this.#writer.put({ ...turn, answer }, turn);
  }

  /** The tokens of a text: sampled ones where known, with the token that stopped the last turn. The caller trims the trees. */
  async tokensOf(tree: string, text: string, session: string): Promise<TextTokens> {
    const root = this.forest.rootIfAny(tree) ?? new TreeNode();
    const own = this.forest.sessionIfAny(root, session);
    const found = await exactIds(this.tokenizer, root, text, { endsTurn: true, addSpecial: true, session: own });
    const { place, rest } = found;
    this.forest.touch(place);
    const nearest = continuedAt(place, own, session !== '');
    const isLost = isLostIn(own, nearest);
    const continued = isLost && nearest?.end.owner !== own ? null : nearest;
    const known = lineTo(place, continued);
    release(place);
    // Only here, because it needs an encoding: the caller trains on these tokens. Without known ones it was just done.
    const again = known.ids.length === 0 ? rest : await this.tokenizer.encode(text, true);
    if (!again.every((id, i) => id === (known.ids[i] ?? rest[i - known.ids.length]))) this.counts.retokenized++;
    const ids = joinedIds(known.ids, rest);
    const [logprobs, mask] = [new Float64Array(ids.length), new Uint8Array(ids.length)];
    logprobs.set(known.logprobs);
    mask.set(known.mask);
    let isAmbiguous = continued !== null && (continued.isAmbiguous || found.isAmbiguous);
    for (let turn = continued?.end ?? null; turn !== null; turn = turn.parent) isAmbiguous ||= turn.isAmbiguous;
    return {
      ids,
      logprobs,
      mask,
      isAmbiguous,
      drift: isLost ? { kind: 'lost', at: continued?.keeps ?? 0 } : null,
    };
  }
}

/** Whether a session has lost turns that this request may continue. */
const isLostIn = (session: KnownSession | null, found: Continued | null): boolean =>
  session !== null &&
  session.lost !== null &&
  !(found !== null && found.end.owner === session && found.end.turn > session.lost);

/** The root of a place's tree. */
function rootOf({ node }: Place): TreeNode {
  let root = node;
  while (root.parent !== null) root = root.parent;
  return root;
}
