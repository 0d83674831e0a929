import { LinkedList, type ListNode } from '../../../kit/linked-list.ts';
import type { TreeNode } from './tree-node.ts';

/**
 * Nodes of all trees in order of last use. A node is never used without those above it, and those are touched after it, so the oldest is
 * always a leaf.
 */
export class UseList extends LinkedList<TreeNode> {
  bytes = 0;

  /** @param previous the node that was used right before it; null: it is the least recently used one */
  add(node: TreeNode, previous: ListNode<TreeNode> | null = this.last): void {
    this.bytes += node.bytes;
    node.use = this.push(node, previous);
  }

  /** It is evicted first. */
  age({ use }: TreeNode): void {
    this.move(use!, null);
  }

  drop(node: TreeNode): void {
    this.bytes -= node.bytes;
    this.remove(node.use!);
    node.use = null;
  }

  touch({ use }: TreeNode): void {
    if (use !== this.last) this.move(use!, this.last);
  }

  /** Nodes from the oldest on; the current one may be removed or touched. */
  *fromOldest(): Iterable<TreeNode> {
    let left = this.size;
    for (const node of this) {
      if (left-- === 0) return;
      yield node;
    }
  }
}
