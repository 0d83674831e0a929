import { LinkedList, type ListNode } from '../../../kit/linked-list.ts';
import type { TreeNode } from './tree-node.ts';

/**
 * Nodes of all trees in order of last use. A node is never used without those above it, and those are touched after it, so the oldest is
 * always a leaf.
 */
export class UseList {
  bytes = 0;
  readonly #list = new LinkedList<TreeNode>();

  get count(): number {
    return this.#list.size;
  }

  add(node: TreeNode): void {
    this.#insert(node, this.#list.last);
  }

  /** As the least recently used. */
  addOldest(node: TreeNode): void {
    this.#insert(node, null);
  }

  /** As used right after `older`. */
  addAfter(node: TreeNode, older: TreeNode): void {
    this.#insert(node, older.use);
  }

  /** It is evicted first. */
  age({ use }: TreeNode): void {
    this.#list.move(use!, null);
  }

  remove(node: TreeNode): void {
    this.bytes -= node.bytes;
    this.#list.remove(node.use!);
    node.use = null;
  }

  touch({ use }: TreeNode): void {
    const { last } = this.#list;
    if (use !== last) this.#list.move(use!, last);
  }

  /** Nodes from the oldest on; the current one may be removed or touched. */
  *fromOldest(): Iterable<TreeNode> {
    let left = this.count;
    for (const node of this.#list) {
      if (left-- === 0) return;
      yield node;
    }
  }

  #insert(node: TreeNode, previous: ListNode<TreeNode> | null): void {
    this.bytes += node.bytes;
    node.use = this.#list.push(node, previous);
  }
}
