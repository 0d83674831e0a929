import type { VersionSpan } from '../../../generation/delta.ts';
import { KnownSession } from './known-session.ts';
import { Mark, type MarkKind, type TurnEnd } from './mark.ts';
import { SESSION_IDLE_MS } from '../../shared/memory-limit.ts';
import { type Run, sharedTokens } from './run.ts';
import { UseList } from './use-list.ts';
import { type Inserted, type Place, TreeNode } from './tree-node.ts';

/** A session with its name and its tables, as measured on Node 24. */
export const SESSION_BYTES = 450;
/** Sessions whose turns were all evicted are known by name, up to this share of the limit. */
const NAMES_SHARE = 1 / 16;

export interface ForestLimits {
  readonly maxNodes: number;
  readonly maxBytes: number;
  /** Nodes that only weights this many versions older than the newest used are removed once their sessions are over. */
  readonly keepVersions: number;
}

/** Counts since the start. */
export interface ForestCounts {
  evictedNodes: number;
  /** Turns that were evicted within `SESSION_IDLE_MS` of their last use, and whose sessions had not ended. */
  evictedLiveTurns: number;
  /** Removed because of the age of their weights. */
  collectedNodes: number;
}

/**
 * Token trees, one for each model and tenant, with common limits. Branches differ by ids and by the text of the ids:
 * the same id may be visible in one trajectory and left out of the text in another.
 */
export class TokenForest {
  readonly versions = new Versions();
  readonly counts: ForestCounts = { evictedNodes: 0, evictedLiveTurns: 0, collectedNodes: 0 };
  readonly #limits: ForestLimits;
  readonly #roots = new Map<string, TreeNode>();
  readonly #sessions = new Map<TreeNode, Map<string, KnownSession>>();
  readonly #uses = new UseList();
  #sessionCount = 0;
  /** Sessions without a turn in their tree. */
  #emptySessions = 0;
  #stamp = 0;
  #collectedFor = -1;
  readonly #nowMs: () => number;
  /** How long ago the inserted tokens were used; null: they are used now. */
  #agoMs: number | null = null;

  constructor(limits: ForestLimits, nowMs: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#nowMs = nowMs;
  }

  get nodes(): number {
    return this.#uses.size;
  }

  get bytes(): number {
    return this.#uses.bytes + this.sessionBytes;
  }

  get sessionBytes(): number {
    return SESSION_BYTES * this.#sessionCount;
  }

  get trees(): number {
    return this.#roots.size;
  }

  get names(): readonly string[] {
    return [...this.#roots.keys()];
  }

  /** A lookup does not create a tree. */
  rootIfAny(name: string): TreeNode | null {
    return this.#roots.get(name) ?? null;
  }

  root(name: string): TreeNode {
    let root = this.#roots.get(name);
    if (root === undefined) this.#roots.set(name, (root = new TreeNode()));
    return root;
  }

  /** Adds tokens after a place, along existing branches as far as they agree. @returns where they end */
  insert(from: Place, run: Run, version: number): Inserted {
    let { node, at } = from;
    let done = 0;
    let known = 0;
    while (done < run.ids.length) {
      if (at === node.length) {
        const next = node.withId(run.ids[done]!).find((child) => sharedTokens(child, 0, run, done) > 0);
        if (next === undefined) {
          node = this.#grow(node, run, done, version);
          at = node.length;
          break;
        }
        node = next;
        at = 0;
      }
      const shared = sharedTokens(node, at, run, done);
      if (shared === 0) {
        node = this.#split(node, at);
        at = node.length;
        continue;
      }
      if (node.isSampled && node.logprobs !== null) known = done + shared;
      ({ node, at } = this.#overwrite(node, at, shared, run, done));
      done += shared;
    }
    this.#touch(node, version);
    return { node, at, shared: known };
  }

  /** What is known of a session in a tree; null: nothing. */
  sessionIfAny(root: TreeNode, name: string): KnownSession | null {
    return this.#sessions.get(root)?.get(name) ?? null;
  }

  session(root: TreeNode, name: string): KnownSession {
    let sessions = this.#sessions.get(root);
    if (sessions === undefined) this.#sessions.set(root, (sessions = new Map()));
    let session = sessions.get(name);
    if (session !== undefined) return session;
    session = new KnownSession(name, root);
    sessions.set(name, session);
    this.#sessionCount++;
    this.#emptySessions++;
    if (this.#emptySessions * SESSION_BYTES > NAMES_SHARE * this.#limits.maxBytes) this.#dropNames(session);
    return session;
  }

  /** A prompt ended here. @param keeps so many of its tokens are of the turn that it continues, and of those before */
  markPrompt(place: Place, keeps: number): void {
    if (place.at === 0) return;
    const { bytes } = place.node;
    const mark = this.#markAt(place, 'prompt', 0);
    mark.keeps = keeps;
    this.#uses.bytes += place.node.bytes - bytes;
  }

  /** A turn ended here, or what its client saw of it. */
  mark(place: Place, kind: 'turn' | 'seen', end: TurnEnd, hiddenBytes = 0): void {
    if (place.at === 0) return;
    const { bytes } = place.node;
    const mark = this.#markAt(place, kind, hiddenBytes);
    const gone = mark.put(end);
    if (kind === 'turn') {
      if (end.owner !== null) this.#changeEnds(end.owner, () => end.owner!.add(end, mark));
      const isOther = gone !== null && gone.turn !== end.turn;
      if (isOther && gone.session === end.session) gone.owner?.ends.delete(gone.turn);
      else if (isOther && gone.owner !== null) this.#changeEnds(gone.owner, () => gone.owner!.lose(gone.turn));
    }
    this.#uses.bytes += place.node.bytes - bytes;
  }

  #markAt({ node, at }: Place, kind: MarkKind, hiddenBytes: number): Mark {
    const stamp = ++this.#stamp;
    const known = node.marks?.find((mark) => mark.at === at && mark.kind === kind && mark.hiddenBytes === hiddenBytes);
    if (known !== undefined) {
      known.stamp = stamp;
      return known;
    }
    const mark = new Mark(node, at, kind, hiddenBytes, stamp);
    // A new list of exact size: `push` reserves space for 17.
    node.marks = node.marks === null ? [mark] : [...node.marks, mark];
    return mark;
  }

  /** A place was used: its node and those above it are evicted last. */
  touch(place: Place): void {
    this.#touch(place.node, 0);
  }

  /** Removes nodes beyond the limits and old ones, except held ones. */
  trim(): void {
    const oldest = this.versions.newest - this.#limits.keepVersions;
    if (this.versions.newest > this.#collectedFor) {
      this.#collectedFor = this.versions.newest;
      for (const node of this.#uses.fromOldest()) {
        if (node.version > oldest || !node.isLeaf || node.isHeld || this.#isLive(node)) continue;
        this.#drop(node);
        this.counts.collectedNodes++;
      }
    }
    if (!this.#isOver()) return;
    for (const node of this.#uses.fromOldest()) {
      if (node.isHeld || !node.isLeaf) continue;
      if (this.#isLive(node)) this.counts.evictedLiveTurns += turnsIn(node);
      this.#drop(node);
      this.counts.evictedNodes++;
      if (!this.#isOver()) break;
    }
  }

  /** Nodes that `insert` adds within `work` count as used this long ago, and are evicted before all others. */
  asUsedAgo(agoMs: number, work: () => void): void {
    this.#agoMs = agoMs;
    try {
      work();
    } finally {
      this.#agoMs = null;
    }
  }

  /** A session is over: nodes that only it used are evicted first. */
  end(session: KnownSession): void {
    for (const { mark } of session.ends.values()) {
      const line: TreeNode[] = [];
      for (let node = mark.node; node.parent !== null && isOnlyOf(node, session, line.at(-1)); node = node.parent) {
        line.push(node);
      }
      // The last one is evicted first: a node is never evicted before those below it.
      for (const node of line.reverse()) {
        node.usedMs = -Infinity;
        this.#uses.age(node);
      }
    }
  }

  /** Sessions of that name, in all trees whose names begin so. */
  *sessionsNamed(name: string, beginning: string): Generator<KnownSession, void, void> {
    for (const [tree, root] of this.#roots) {
      const session = tree.startsWith(beginning) ? this.sessionIfAny(root, name) : null;
      if (session !== null) yield session;
    }
  }

  /** The older half of the sessions without a turn in their tree, which the store may have nevertheless. */
  #dropNames(except: KnownSession): void {
    let left = Math.ceil(this.#emptySessions / 2);
    for (const sessions of this.#sessions.values()) {
      for (const session of sessions.values()) {
        if (left === 0) return;
        if (session.ends.size > 0 || session === except) continue;
        sessions.delete(session.name);
        left--;
        this.#emptySessions--;
        this.#sessionCount--;
      }
    }
  }

  /** The number of a session's turns changes. */
  #changeEnds(session: KnownSession, change: () => void): void {
    const wasEmpty = session.ends.size === 0;
    change();
    const isEmpty = session.ends.size === 0;
    const isKnown = this.sessionIfAny(session.root, session.name) === session;
    if (wasEmpty !== isEmpty && isKnown) this.#emptySessions += isEmpty ? 1 : -1;
  }

  #isLive(node: TreeNode): boolean {
    return this.#nowMs() - node.usedMs < SESSION_IDLE_MS;
  }

  #isOver(): boolean {
    return this.#uses.size > this.#limits.maxNodes || this.bytes > this.#limits.maxBytes;
  }

  #grow(parent: TreeNode, run: Run, done: number, version: number): TreeNode {
    const node = new TreeNode();
    node.take(run, done, run.ids.length, run.logprobs);
    node.depth = parent.depth + parent.length;
    node.version = version;
    parent.add(node);
    node.usedMs = this.#nowMs() - (this.#agoMs ?? 0);
    this.#uses.add(node, this.#agoMs === null ? this.#uses.last : null);
    return node;
  }

  #split(node: TreeNode, at: number): TreeNode {
    this.#uses.bytes -= node.bytes;
    const upper = node.split(at);
    this.#uses.bytes += node.bytes;
    // After it: those above are never older.
    this.#uses.add(upper, node.use);
    return upper;
  }

  /** The tokens exist already: sampled ones replace given ones, and the first sampled ones stay. @returns where they end */
  #overwrite(node: TreeNode, at: number, count: number, run: Run, done: number): Place {
    const end = { node, at: at + count };
    if (!run.isSampled || (node.isSampled && (run.logprobs === null || node.logprobs !== null))) return end;
    if (node.isSampled) {
      const logprobs = new Float64Array(node.length);
      for (let i = 0; i < count; i++) logprobs[at + i] = run.logprobs![done + i]!;
      this.#uses.bytes -= node.bytes;
      node.take(node, 0, node.length, logprobs);
      this.#uses.bytes += node.bytes;
      return end;
    }
    if (at > 0) this.#split(node, at);
    const target = count < node.length ? this.#split(node, count) : node;
    this.#uses.bytes -= target.bytes;
    target.take(run, done, done + count, run.logprobs);
    this.#uses.bytes += target.bytes;
    return { node: target, at: count };
  }

  #touch(from: TreeNode, version: number): void {
    const nowMs = this.#nowMs();
    for (let node: TreeNode = from; node.parent !== null; node = node.parent) {
      if (node.version < version) node.version = version;
      if (this.#agoMs !== null) continue;
      node.usedMs = nowMs;
      this.#uses.touch(node);
    }
  }

  #drop(node: TreeNode): void {
    const parent = node.parent!;
    parent.remove(node);
    this.#uses.drop(node);
    this.#forget(node);
    if (parent.parent === null && parent.isLeaf) {
      for (const [name, root] of this.#roots) {
        if (root !== parent || root.isHeld) continue;
        this.#roots.delete(name);
        for (const { ends } of this.#sessions.get(root)?.values() ?? []) {
          this.#sessionCount--;
          if (ends.size === 0) this.#emptySessions--;
        }
        this.#sessions.delete(root);
      }
    }
  }

  /** Forgets the ends of turns in a removed node. */
  #forget({ marks }: TreeNode): void {
    for (const mark of marks ?? []) {
      if (mark.kind !== 'turn') continue;
      for (const { owner, turn } of mark.ends()) {
        if (owner?.ends.get(turn)?.mark === mark) this.#changeEnds(owner, () => owner.lose(turn));
      }
    }
  }
}

function turnsIn({ marks }: TreeNode): number {
  let turns = 0;
  for (const mark of marks ?? []) if (mark.kind === 'turn') for (const _ of mark.ends()) turns++;
  return turns;
}

/** Whether nothing but turns of this session ends in a node, and nothing but `below` follows it. */
function isOnlyOf(node: TreeNode, session: KnownSession, below: TreeNode | undefined): boolean {
  if (node.isHeld) return false;
  for (const child of node.children) if (child !== below && child.usedMs !== -Infinity) return false;
  for (const mark of node.marks ?? []) for (const { owner } of mark.ends()) if (owner !== session) return false;
  return true;
}

/**
 * Ordinals of weight versions, to compare their ages: a version that is a whole number is that number; any other one comes after all that
 * were seen before.
 */
class Versions {
  /** The newest seen; -1 before any. */
  newest = -1;
  readonly #named = new Map<string, number>();

  /** Of the newest version that these spans name; null: they name none. */
  newestOf(spans: readonly VersionSpan[]): number | null {
    let newest: number | null = null;
    for (const { version } of spans) if (version !== null) newest = Math.max(newest ?? -1, this.ordinalOf(version));
    return newest;
  }

  ordinalOf(version: string): number {
    if (/^\d{1,15}$/.test(version)) {
      const number = Number(version);
      this.newest = Math.max(this.newest, number);
      return number;
    }
    let ordinal = this.#named.get(version);
    if (ordinal === undefined) this.#named.set(version, (ordinal = ++this.newest));
    return ordinal;
  }
}
