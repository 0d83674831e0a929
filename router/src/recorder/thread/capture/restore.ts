import { setImmediate, setTimeout } from 'node:timers/promises';
import { DamagedRecord, type TurnOutline } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import type { TokenForest } from '../tree/forest.ts';
import type { KnownSession } from '../tree/known-session.ts';
import type { Mark, TurnEnd } from '../tree/mark.ts';
import { type Place, type TreeNode, release } from '../tree/tree-node.ts';
import type { SessionTable } from '../../shared/session-table.ts';
import type { Turn } from '../../shared/turn.ts';
import { placeTurn, runOf } from './place-turn.ts';
import { alignedAnswer, alignedPrompt } from './turn-texts.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

/** How many turns of a session are loaded, the newest ones. */
const MAX_TURNS = 1_024;
/** A longer chain of turns is not loaded. */
const MAX_LINE = 4_096;
/** After this many turns other calls of the thread run. */
const TURNS_AT_ONCE = 16;
const PAGE_TURNS = 64;
/** At the start trees are filled up to this share of their limit. */
const FILLED_SHARE = 0.5;
/** A request without a session waits until the trees are filled, at most until this long after the filling began. */
export const FILL_WAIT_MS = 5_000;

/** Sessions with turns that neither a tree nor the store has, each with an id that sorts after these turns. */
export type LostTurns = SessionTable<string>;

interface PlacedEnd {
  readonly end: TurnEnd;
  readonly mark: Mark;
}

/** Loads turns from the store into the trees: those of a session that are missing, and at the start the newest ones. */
export class Restore {
  /** Turns that were loaded. */
  turns = 0;
  readonly #tokenizer: Tokenizer;
  readonly #forest: TokenForest;
  readonly #writer: TurnWriter;
  readonly #lost: LostTurns;
  readonly #running = new Map<string, Promise<void>>();
  #filling: Promise<void> | null = null;
  #fillStartMs = 0;

  constructor(tokenizer: Tokenizer, forest: TokenForest, writer: TurnWriter, lost: LostTurns) {
    this.#tokenizer = tokenizer;
    this.#forest = forest;
    this.#writer = writer;
    this.#lost = lost;
  }

  /**
   * Loads the turns of a session that a tree lacks, before a prompt is looked up. Resolves when they are in the tree, or can't be read.
   * The caller trims the trees, after its lookup: the session may have more turns than fit.
   * @param session '' where the request names none
   */
  async wanted(tree: string, tenant: string, session: string): Promise<void> {
    if (session === '') return this.filled(FILL_WAIT_MS);
    await this.#broughtBack(tree, tenant, session);
    const lost = this.#lost.get({ session, tenant });
    if (lost !== null) this.#forest.session(this.#forest.root(tree), session).notLoaded(lost);
  }

  async #broughtBack(tree: string, tenant: string, session: string): Promise<void> {
    const key = `${tree}\n${session}`;
    const running = this.#running.get(key);
    if (running !== undefined) return running;
    const known = this.#known(tree, session);
    if (known?.isWhole === true && known.missing === null) return;
    const bringing = this.#bring(tenant, session, tree).finally(() => this.#running.delete(key));
    this.#running.set(key, bringing);
    return bringing;
  }

  /** Loads a session's turns of all trees. */
  async session(tenant: string, session: string): Promise<void> {
    const newest = await this.#newestOf(tenant, session).catch(() => null);
    for (const tree of new Set(newest?.turns.map(treeOf))) if (tree !== null) await this.wanted(tree, tenant, session);
  }

  /** Fills the trees with the newest turns, in the background. */
  fill(maxBytes: number, maxNodes: number): void {
    this.#fillStartMs = performance.now();
    this.#filling ??= this.#fill(FILLED_SHARE * maxBytes, FILLED_SHARE * maxNodes)
      .catch(() => {})
      .finally(() => (this.#filling = null));
  }

  /** Resolves when the trees are filled, or `waitMs` after the filling began. */
  async filled(waitMs: number): Promise<void> {
    const leftMs = this.#fillStartMs + waitMs - performance.now();
    if (this.#filling === null || leftMs <= 0) return;
    const over = new AbortController();
    const late = setTimeout(leftMs, undefined, { signal: over.signal, ref: false }).catch(() => {});
    await Promise.race([this.#filling, late]).finally(() => over.abort());
  }

  async #fill(bytes: number, nodes: number): Promise<void> {
    let before: string | undefined;
    for (;;) {
      const ids: string[] = [];
      const page = await this.#writer.store.newest({ limit: PAGE_TURNS, before }, ({ id }) => ids.push(id));
      for (const outline of page) {
        ids.push(outline.id);
        if (this.#forest.bytes > bytes || this.#forest.nodes > nodes) return;
        await this.#bringIfReadable(outline, Date.now() - outline.startedAtMs);
        await setImmediate();
      }
      if (ids.length < PAGE_TURNS) return;
      before = ids.toSorted()[0];
    }
  }

  async #bring(tenant: string, session: string, tree: string): Promise<void> {
    const forest = this.#forest;
    if (this.#known(tree, session) === null) {
      const newest = await this.#newestOf(tenant, session).catch(() => null);
      // In most cases the session is new.
      if (newest === null || (newest.damaged === null && newest.turns.every((outline) => treeOf(outline) !== tree))) {
        const root = forest.rootIfAny(tree);
        if (newest !== null && root !== null) forest.session(root, session).isWhole = true;
        return;
      }
    }
    const known = forest.session(forest.root(tree), session);
    known.isWhole = false;
    try {
      await this.#writer.flush();
      const { turns, damaged } = await this.#newestOf(tenant, session);
      // Of which tree it is, is not known.
      known.notLoaded(damaged);
      for (const [i, outline] of turns.toReversed().entries()) {
        if (treeOf(outline) !== tree) continue;
        if (!(await this.#bringIfReadable(outline, null))) known.notLoaded(outline.id);
        if (i % TURNS_AT_ONCE === TURNS_AT_ONCE - 1) await setImmediate();
      }
      known.isWhole = true;
    } catch {
      // A store that can't be read now is read again with the session's next request.
    }
    known.notLoaded(known.missing);
    if (known.isWhole) known.missing = null;
  }

  /** `damaged`: the newest turn that can't be read; null: there is none. */
  async #newestOf(
    tenant: string,
    session: string,
  ): Promise<{ readonly turns: readonly TurnOutline[]; readonly damaged: string | null }> {
    let damaged: string | null = null;
    const onDamaged = ({ id }: { readonly id: string }): void => {
      damaged ??= id;
    };
    const turns = await this.#writer.store.newest({ session, tenant, limit: MAX_TURNS }, onDamaged);
    return { turns, damaged };
  }

  /** A turn that is damaged, or continues one that is, keeps no other one from being loaded. */
  async #bringIfReadable(outline: TurnOutline, agoMs: number | null): Promise<boolean> {
    return this.#bringOne(outline, agoMs).catch((error: unknown) => {
      if (error instanceof DamagedRecord) return false;
      throw error;
    });
  }

  /** @param agoMs how long ago it was used; null: it is used now @returns false: it is not on record, or what it continues is not */
  async #bringOne(outline: TurnOutline, agoMs: number | null): Promise<boolean> {
    // A turn without sampled tokens has no place in a tree, and no turn continues it.
    if (treeOf(outline) === null || outline.outputTokens === 0 || this.#placed(outline) !== null) return true;
    const line: Turn[] = [];
    for (let id: string | null = outline.id; id !== null;) {
      const turn: Turn | null = line.length < MAX_LINE ? await this.#writer.store.get(id, false) : null;
      if (turn === null || treeOf(turn) === null) return false;
      if (this.#placed(turn) !== null) break;
      line.push(turn);
      id = turn.parent;
      // The previous turn is usually of the same session, and in the tree.
      if (id !== null && this.#placed({ ...turn, id }) !== null) break;
    }
    let before: PlacedEnd | null = null;
    for (const turn of line.toReversed()) {
      if (turn.parent !== null) before = this.#placed({ ...turn, id: turn.parent }) ?? before;
      if (turn.parent !== null && before?.end.turn !== turn.parent) before = await this.#elsewhere(turn.parent);
      if (turn.parent !== null && before === null) return false;
      if (!(await this.#place(turn, turn.parent === null ? null : before, agoMs))) return false;
      before = this.#placed(turn);
    }
    return true;
  }

  /** The end of a turn of another session. */
  async #elsewhere(id: string): Promise<PlacedEnd | null> {
    const turn = await this.#writer.store.get(id, false);
    return turn === null ? null : this.#placed(turn);
  }

  #placed(turn: Pick<Turn, 'id' | 'session' | 'tenant' | 'model'>): PlacedEnd | null {
    return this.#known(tenantKey(turn.tenant, turn.model), turn.session)?.ends.get(turn.id) ?? null;
  }

  #known(tree: string, session: string): KnownSession | null {
    const root = this.#forest.rootIfAny(tree);
    return root === null ? null : this.#forest.sessionIfAny(root, session);
  }

  async #place(turn: Turn, before: PlacedEnd | null, agoMs: number | null): Promise<boolean> {
    const forest = this.#forest;
    const { id, session, index, keeps, ids, outputTokens } = turn;
    const asked = ids.length - (outputTokens ?? 0);
    if (outputTokens === null || outputTokens < 1 || asked < 0 || keeps > (before?.end.tokens ?? 0)) return false;
    const root = forest.root(tenantKey(turn.tenant, turn.model));
    const start = before === null ? root.hold(0) : placeAt(before.mark, keeps);
    try {
      const given = await alignedPrompt(this.#tokenizer, ids.subarray(0, asked), turn);
      const sampled = alignedAnswer(this.#tokenizer, ids.subarray(asked), turn);
      const logprobs = turn.logprobs.slice(asked);
      const versions = turn.versions.map((span) => ({ ...span, from: span.from - asked, to: span.to - asked }));
      const version = forest.versions.newestOf(versions) ?? -1;
      const isAmbiguous = turn.isAmbiguous === true;
      const placed = {
        id,
        session,
        owner: forest.session(root, session),
        index,
        continued: before === null ? null : { end: before.end, keeps, isAmbiguous },
        logprobs: logprobs.every(Number.isNaN) ? null : logprobs,
        versions,
        finishReason: turn.finishReason,
      };
      const place = (): void => {
        const end = forest.insert(start, runOf(given, null, false), version);
        forest.markPrompt(end, keeps);
        const held = end.node.hold(end.at);
        placeTurn(forest, held, sampled, placed, version);
        release(held);
      };
      if (agoMs === null) place();
      else forest.asUsedAgo(agoMs, place);
      this.turns++;
      return true;
    } finally {
      release(start);
    }
  }
}

/** null: it is a turn of a chat, or something else that has no place in a tree. */
const treeOf = ({ path, tenant, model, isExact }: Pick<Turn, 'path' | 'tenant' | 'model' | 'isExact'>): string | null =>
  path.endsWith('/chat/completions') || isExact === false ? null : tenantKey(tenant, model);

/** The place on the way to a mark with so many tokens before it; held. */
function placeAt(mark: Mark, tokens: number): Place {
  let node: TreeNode = mark.node;
  let at = mark.at;
  while (node.parent !== null && node.depth >= tokens && tokens < node.depth + at) {
    node = node.parent;
    at = node.length;
  }
  return node.hold(Math.min(at, tokens - node.depth));
}
