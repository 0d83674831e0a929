import type { TreeNode } from './tree-node.ts';

/**
 * Nodes of all trees in the order of their last use. A node is never used without those above it, and those are touched after it:
 * so the oldest is a leaf, always.
 */
export class UseList {
  count = 0;
  bytes = 0;
  #oldest: TreeNode | null = null;
  #newest: TreeNode | null = null;

  add(node: TreeNode): void {
    this.count++;
    this.bytes += node.bytes;
    this.#append(node);
  }

  remove(node: TreeNode): void {
    this.count--;
    this.bytes -= node.bytes;
    this.#unlink(node);
  }

  touch(node: TreeNode): void {
    if (node === this.#newest) return;
    this.#unlink(node);
    this.#append(node);
  }

  /** Nodes from the oldest on; the one just answered may be removed or touched. */
  *fromOldest(): Iterable<TreeNode> {
    let left = this.count;
    let node = this.#oldest;
    while (node !== null && left-- > 0) {
      const next: TreeNode | null = node.newer;
      yield node;
      node = next;
    }
  }

  #append(node: TreeNode): void {
    node.older = this.#newest;
    node.newer = null;
    if (this.#newest === null) this.#oldest = node;
    else this.#newest.newer = node;
    this.#newest = node;
  }

  #unlink(node: TreeNode): void {
    if (node.older === null) this.#oldest = node.newer;
    else node.older.newer = node.newer;
    if (node.newer === null) this.#newest = node.older;
    else node.newer.older = node.older;
    node.older = null;
    node.newer = null;
  }
}
