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
    this.#insert(node, this.#newest);
  }

  /** As the least recently used. */
  addOldest(node: TreeNode): void {
    this.count++;
    this.bytes += node.bytes;
    this.#insert(node, null);
  }

  /** As used right after `older`. */
  addAfter(node: TreeNode, older: TreeNode): void {
    this.count++;
    this.bytes += node.bytes;
    this.#insert(node, older);
  }

  /** It is the first to go. */
  age(node: TreeNode): void {
    this.#unlink(node);
    this.#insert(node, null);
  }

  remove(node: TreeNode): void {
    this.count--;
    this.bytes -= node.bytes;
    this.#unlink(node);
  }

  touch(node: TreeNode): void {
    if (node === this.#newest) return;
    this.#unlink(node);
    this.#insert(node, this.#newest);
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

  #insert(node: TreeNode, older: TreeNode | null): void {
    const newer = older === null ? this.#oldest : older.newer;
    node.older = older;
    node.newer = newer;
    if (older === null) this.#oldest = node;
    else older.newer = node;
    if (newer === null) this.#newest = node;
    else newer.older = node;
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
