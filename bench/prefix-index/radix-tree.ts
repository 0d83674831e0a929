// The alternative to the block index: a compact radix tree over bytes, shared by all workers.

interface Node {
  text: Buffer;
  parent: Node | null;
  /** By first byte. */
  readonly children: Map<number, Node>;
  /** Which workers have the text up to the end of this node, and when each last used it. */
  readonly lastUse: Map<number, number>;
}

/**
 * One tree for all workers, so that one walk matches all of them: at each node the workers that end there drop out.
 * Texts are copied, because a slice would keep the whole request alive.
 */
export class RadixTree {
  readonly #root: Node = { text: Buffer.alloc(0), parent: null, children: new Map(), lastUse: new Map() };
  readonly #bytes = new Map<number, number>();
  #clock = 0;
  nodes = 1;

  bytes(worker: number): number {
    return this.#bytes.get(worker) ?? 0;
  }

  /** Bytes of `text` that each worker has, into `matched` by worker. */
  match(text: Buffer, matched: Int32Array): void {
    matched.fill(0);
    let node = this.#root;
    let at = 0;
    while (at < text.length) {
      const child = node.children.get(text[at]!);
      if (child === undefined) return;
      const shared = sharedBytes(child.text, text, at);
      for (const worker of child.lastUse.keys()) matched[worker] = at + shared;
      if (shared < child.text.length) return;
      at += shared;
      node = child;
    }
  }

  insert(worker: number, text: Buffer): void {
    const now = ++this.#clock;
    let node = this.#root;
    let at = 0;
    while (at < text.length) {
      let child = node.children.get(text[at]!);
      if (child === undefined) {
        child = this.#newNode(Buffer.from(text.subarray(at)), node, new Map());
      } else {
        const shared = sharedBytes(child.text, text, at);
        if (shared < child.text.length) child = this.#split(child, shared);
      }
      if (!child.lastUse.has(worker)) this.#bytes.set(worker, this.bytes(worker) + child.text.length);
      child.lastUse.set(worker, now);
      at += child.text.length;
      node = child;
    }
  }

  /** Removes the worker's least recently used leaves until it has at most `maxBytes`. Walks the whole tree. */
  evict(worker: number, maxBytes: number): void {
    if (this.bytes(worker) <= maxBytes) return;
    const held: Node[] = [];
    const open = [this.#root];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      for (const child of node.children.values()) if (child.lastUse.has(worker)) open.push(child);
      if (node !== this.#root) held.push(node);
    }
    // Of equally old ones the deeper one goes first: parents outlive their children.
    const depth = new Map(held.map((node, i) => [node, i]));
    held.sort((a, b) => a.lastUse.get(worker)! - b.lastUse.get(worker)! || depth.get(b)! - depth.get(a)!);
    for (const node of held) {
      if (this.bytes(worker) <= maxBytes) return;
      node.lastUse.delete(worker);
      this.#bytes.set(worker, this.bytes(worker) - node.text.length);
      if (node.lastUse.size > 0) continue;
      node.parent!.children.delete(node.text[0]!);
      this.nodes--;
    }
  }

  #newNode(text: Buffer, parent: Node, lastUse: Map<number, number>): Node {
    const node = { text, parent, children: new Map(), lastUse };
    parent.children.set(text[0]!, node);
    this.nodes++;
    return node;
  }

  /** Splits a node. @returns the upper one, which replaces it */
  #split(node: Node, length: number): Node {
    const upper = this.#newNode(node.text.subarray(0, length), node.parent!, new Map(node.lastUse));
    node.text = node.text.subarray(length);
    node.parent = upper;
    upper.children.set(node.text[0]!, node);
    return upper;
  }
}

/** How many bytes `label` shares with `text` from `at` on. Whole labels are compared natively, others by halving. */
function sharedBytes(label: Buffer, text: Buffer, at: number): number {
  const longest = Math.min(label.length, text.length - at);
  if (longest > 32 && label.compare(text, at, at + longest, 0, longest) === 0) return longest;
  let low = 0;
  let high = longest;
  while (high - low > 32) {
    const middle = (low + high) >>> 1;
    if (label.compare(text, at + low, at + middle, low, middle) === 0) low = middle;
    else high = middle;
  }
  while (low < longest && label[low] === text[at + low]) low++;
  return low;
}
