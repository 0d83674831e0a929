// The KV memory of an engine as a prefix tree of segments. Least recently used leaves go first, from their tail on.
import { EventQueue } from './event-queue.ts';
import type { Segment } from './workload.ts';

const blockTokens = 16;

/** A segment in the tree, as much of it as is still held. */
export class CacheNode {
  readonly segment: Segment;
  readonly parent: CacheNode | undefined;
  /** Tokens held, from the start of the segment; less than its length once its tail was evicted. */
  held = 0;
  /** Running requests that read it. */
  readers = 0;
  children = 0;
  /** Virtual seconds. */
  usedAt = 0;
  isGone = false;

  constructor(segment: Segment, parent: CacheNode | undefined) {
    this.segment = segment;
    this.parent = parent;
  }
}

/**
 * Tokens only, no content. It can exceed any capacity: its owner evicts down to the wanted size. The approximate index
 * of a router is the same tree without readers.
 */
export class KvCache {
  readonly #nodes = new Map<number, CacheNode>();
  /** Leaves without readers by time of use; outdated entries are skipped. */
  readonly #leaves = new EventQueue<CacheNode>();
  #tokens = 0;
  #evictable = 0;

  /** Tokens held. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Of those, tokens that no running request reads. */
  get evictableTokens(): number {
    return this.#evictable;
  }

  /** Tokens of the longest held prefix, in whole blocks of 16. */
  match(segments: readonly Segment[]): number {
    let tokens = 0;
    for (let i = 0; i < segments.length; i++) {
      const node = this.#nodes.get(segments[i]!.id);
      if (node === undefined) break;
      tokens += node.held;
      if (node.held < node.segment.tokens) break;
    }
    return tokens - (tokens % blockTokens);
  }

  /** Holds all of the segments, without a reader. */
  insert(segments: readonly Segment[], now: number): void {
    let node: CacheNode | undefined;
    for (let i = 0; i < segments.length; i++) {
      node = this.#touch(segments[i]!, node, now);
      if (node.readers === 0) this.#evictable += node.held;
    }
    if (node !== undefined) this.#offer(node);
  }

  /** Holds all of the segments for a reader. @returns the argument of `release` */
  acquire(segments: readonly Segment[], now: number): CacheNode[] {
    const nodes: CacheNode[] = [];
    let node: CacheNode | undefined;
    for (let i = 0; i < segments.length; i++) {
      node = this.#touch(segments[i]!, node, now);
      node.readers += 1;
      nodes.push(node);
    }
    return nodes;
  }

  release(nodes: readonly CacheNode[], now: number): void {
    for (let i = 0; i < nodes.length; i++) {
      const node = nodes[i]!;
      if (node.isGone) continue;
      node.readers -= 1;
      node.usedAt = now;
      if (node.readers > 0) continue;
      this.#evictable += node.held;
      this.#offer(node);
    }
  }

  /** Frees this many tokens, fewer if readers hold the rest. */
  evict(tokens: number): void {
    let left = tokens;
    while (left > 0 && this.#leaves.size > 0) {
      const usedAt = this.#leaves.firstKey;
      const node = this.#leaves.pop()!;
      if (node.isGone || node.readers > 0 || node.children > 0 || node.usedAt !== usedAt) continue;
      const cut = Math.min(left, node.held);
      node.held -= cut;
      this.#tokens -= cut;
      this.#evictable -= cut;
      left -= cut;
      if (node.held > 0) this.#offer(node);
      else this.#remove(node);
    }
  }

  /** Forgets all that no running request reads. */
  flush(): void {
    this.evict(this.#evictable);
  }

  /** Completes a segment and removes it from the evictable count; the caller decides whether it is added again. */
  #touch(segment: Segment, parent: CacheNode | undefined, now: number): CacheNode {
    let node = this.#nodes.get(segment.id);
    if (node === undefined) {
      node = new CacheNode(segment, parent);
      this.#nodes.set(segment.id, node);
      if (parent !== undefined) parent.children += 1;
    }
    if (node.readers === 0) this.#evictable -= node.held;
    this.#tokens += segment.tokens - node.held;
    node.held = segment.tokens;
    node.usedAt = now;
    return node;
  }

  #remove(node: CacheNode): void {
    node.isGone = true;
    this.#nodes.delete(node.segment.id);
    const { parent } = node;
    if (parent === undefined || parent.isGone) return;
    parent.children -= 1;
    this.#offer(parent);
  }

  #offer(node: CacheNode): void {
    if (node.readers === 0 && node.children === 0) this.#leaves.push(node.usedAt, node);
  }
}
