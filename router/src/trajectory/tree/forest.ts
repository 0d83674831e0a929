import { PackedMemory } from '../../kit/packed-memory.ts';
import { KnownSession } from './known-session.ts';
import { Mark, type MarkKind, type TurnEnd } from './mark.ts';
import { type Run, pieceOf } from './run.ts';
import { UseList } from './use-list.ts';
import { Versions } from './versions.ts';
import { type Inserted, type Place, TreeNode } from './tree-node.ts';

export interface ForestLimits {
  readonly maxNodes: number;
  readonly maxBytes: number;
  /** Nodes that only weights so many versions older than the newest used are removed. */
  readonly keepVersions: number;
}

/** What became of the trees so far. */
export interface ForestCounts {
  evictedNodes: number;
  /** Removed for the age of their weights. */
  collectedNodes: number;
}

/**
 * Token trees, one for each model and tenant, with their limits over all of them. Branches are told apart by ids and by the text
 * that ids stand for: the same id may be visible in one trajectory and left out of the text in another.
 */
export class TokenForest {
  readonly versions = new Versions();
  readonly counts: ForestCounts = { evictedNodes: 0, collectedNodes: 0 };
  readonly memory = new PackedMemory();
  readonly #limits: ForestLimits;
  readonly #roots = new Map<string, TreeNode>();
  readonly #sessions = new Map<TreeNode, Map<string, KnownSession>>();
  readonly #uses = new UseList();
  #stamp = 0;
  #collectedFor = -1;

  constructor(limits: ForestLimits) {
    this.#limits = limits;
  }

  get nodes(): number {
    return this.#uses.count;
  }

  get bytes(): number {
    return this.#uses.bytes;
  }

  get trees(): number {
    return this.#roots.size;
  }

  get names(): readonly string[] {
    return [...this.#roots.keys()];
  }

  /** A question alone makes no tree. */
  rootIfAny(name: string): TreeNode | null {
    return this.#roots.get(name) ?? null;
  }

  root(name: string): TreeNode {
    let root = this.#roots.get(name);
    if (root === undefined) this.#roots.set(name, (root = new TreeNode()));
    return root;
  }

  /** Puts tokens behind a place, along branches that are there already as far as they agree. @returns where they end */
  insert(from: Place, run: Run, version: number): Inserted {
    let { node, at } = from;
    let done = 0;
    let known = 0;
    while (done < run.ids.length) {
      if (at === node.length) {
        const next = childFor(node, run, done);
        if (next === null) {
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
      if (node.isSampled && node.hasLogprobs) known = done + shared;
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
    if (session === undefined) sessions.set(name, (session = new KnownSession(name, root)));
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
      if (gone !== null) gone.owner?.ends.delete(gone.turn);
      end.owner?.add(end, mark);
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
    // A new list, of just that size: `push` makes room for 17.
    node.marks = node.marks === null ? [mark] : [...node.marks, mark];
    return mark;
  }

  /** It was used: it and what is above it are the last to go. */
  touch(place: Place): void {
    this.#touch(place.node, 0);
  }

  /** Removes what is beyond the limits or too old. Whatever somebody holds stays. */
  trim(): void {
    const oldest = this.versions.newest - this.#limits.keepVersions;
    if (this.versions.newest > this.#collectedFor) {
      this.#collectedFor = this.versions.newest;
      for (const node of this.#uses.fromOldest()) {
        if (node.version > oldest || !node.isLeaf || node.isHeld) continue;
        this.#drop(node);
        this.counts.collectedNodes++;
      }
    }
    if (!this.#isOver()) return;
    for (const node of this.#uses.fromOldest()) {
      if (node.isHeld || !node.isLeaf) continue;
      this.#drop(node);
      this.counts.evictedNodes++;
      if (!this.#isOver()) break;
    }
  }

  #isOver(): boolean {
    return this.#uses.count > this.#limits.maxNodes || this.#uses.bytes > this.#limits.maxBytes;
  }

  #grow(parent: TreeNode, run: Run, done: number, version: number): TreeNode {
    const node = new TreeNode();
    node.take(this.memory, run, done, run.ids.length);
    node.depth = parent.depth + parent.length;
    node.version = version;
    parent.add(node);
    this.#uses.add(node);
    return node;
  }

  #split(node: TreeNode, at: number): TreeNode {
    this.#uses.remove(node);
    const upper = node.split(this.memory, at);
    this.#uses.add(node);
    // After it: those above are never older.
    this.#uses.add(upper);
    return upper;
  }

  /** The same tokens once more: sampled ones win over given ones, and of sampled ones the first. @returns where they end */
  #overwrite(node: TreeNode, at: number, count: number, run: Run, done: number): Place {
    const end = { node, at: at + count };
    if (!run.isSampled || (node.isSampled && (run.logprobs === null || node.hasLogprobs))) return end;
    if (node.isSampled) {
      const logprobs = new Float64Array(node.length);
      for (let i = 0; i < count; i++) logprobs[at + i] = run.logprobs![done + i]!;
      this.#uses.remove(node);
      node.take(this.memory, node, 0, node.length, logprobs);
      this.#uses.add(node);
      return end;
    }
    if (at > 0) this.#split(node, at);
    const target = count < node.length ? this.#split(node, count) : node;
    this.#uses.remove(target);
    target.take(this.memory, run, done, done + count);
    this.#uses.add(target);
    return { node: target, at: count };
  }

  #touch(from: TreeNode, version: number): void {
    for (let node: TreeNode = from; node.parent !== null; node = node.parent) {
      if (node.version < version) node.version = version;
      this.#uses.touch(node);
    }
  }

  #drop(node: TreeNode): void {
    const parent = node.parent!;
    parent.remove(node);
    this.#uses.remove(node);
    this.memory.free(node);
    this.#forget(node);
    if (parent.parent === null && parent.isLeaf) {
      for (const [name, root] of this.#roots) {
        if (root !== parent || root.isHeld) continue;
        this.#roots.delete(name);
        this.#sessions.delete(root);
      }
    }
  }

  /** The ends of turns in a node that goes. */
  #forget({ marks }: TreeNode): void {
    for (const mark of marks ?? []) {
      if (mark.kind !== 'turn') continue;
      for (const { owner, turn } of mark.ends()) {
        if (owner === null || owner.ends.get(turn)?.mark !== mark) continue;
        owner.ends.delete(turn);
        if (owner.ends.size === 0) this.#sessions.get(owner.root)?.delete(owner.name);
      }
    }
  }
}

/** The child that begins with the run's token `done`, with the same text. */
function childFor(node: TreeNode, run: Run, done: number): TreeNode | null {
  for (const child of node.withId(run.ids[done]!)) if (sharedTokens(child, 0, run, done) > 0) return child;
  return null;
}

/** How many tokens are the same, with the same text, from both places on. */
function sharedTokens(node: TreeNode, at: number, run: Run, done: number): number {
  const most = Math.min(node.length - at, run.ids.length - done);
  if (node.spelling !== null || run.spelling !== null) return sharedSpelled(node, at, run, done);
  const shift = node.textBefore(at) - (done === 0 ? 0 : run.ends[done - 1]!);
  let shared = 0;
  while (
    shared < most &&
    node.idAt(at + shared) === run.ids[done + shared] &&
    node.textBefore(at + shared + 1) === run.ends[done + shared]! + shift
  )
    shared++;
  if (shared === 0) return 0;
  const from = node.textBefore(at);
  const to = node.textBefore(at + shared);
  const { text } = node;
  if (text.compare(run.text, from - shift, to - shift, from, to) === 0) return shared;
  // Rare: the same ids and lengths with other text, as pieces that could not be taken apart have.
  for (let i = 0; i < shared; i++) {
    const start = node.textBefore(at + i);
    const end = node.textBefore(at + i + 1);
    if (text.compare(run.text, start - shift, end - shift, start, end) !== 0) return i;
  }
  return shared;
}

/** The same where one of them, or both, are spelled. */
function sharedSpelled(node: TreeNode, at: number, run: Run, done: number): number {
  const most = Math.min(node.length - at, run.ids.length - done);
  const isAlike = node.spelling === run.spelling;
  let shared = 0;
  while (
    shared < most &&
    node.idAt(at + shared) === run.ids[done + shared] &&
    (isAlike || node.pieceAt(at + shared).equals(pieceOf(run, done + shared)))
  )
    shared++;
  return shared;
}
