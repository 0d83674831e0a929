import type { TreeNode } from './tree-node.ts';

const NONE: readonly TreeNode[] = [];

/** The first byte of a node's first token; -1 if that has no text. */
const byteOf = ({ ends, text }: TreeNode): number => (ends[0] === 0 ? -1 : text[0]!);

/**
 * What follows a node, found by its first id and by the first byte of its text. Several may share both: the same id with other text.
 * Most nodes are followed by one: that needs no tables.
 */
export class Children {
  #only: TreeNode | null;
  #byId: Map<number, TreeNode[]> | null = null;
  #byByte: Map<number, TreeNode[]> | null = null;

  constructor(first: TreeNode) {
    this.#only = first;
  }

  add(child: TreeNode): void {
    if (this.#byId === null) {
      this.#byId = new Map();
      this.#byByte = new Map();
      this.#enter(this.#only!);
      this.#only = null;
    }
    this.#enter(child);
  }

  /** @returns false: there are none left */
  remove(child: TreeNode): boolean {
    if (this.#only !== null) return false;
    leave(this.#byId!, child.ids[0]!, child);
    leave(this.#byByte!, byteOf(child), child);
    return this.#byId!.size > 0;
  }

  withId(id: number): readonly TreeNode[] {
    if (this.#byId !== null) return this.#byId.get(id) ?? NONE;
    return this.#only!.ids[0] === id ? [this.#only!] : NONE;
  }

  /** Children whose first token begins with `byte`; -1: has no text. */
  withByte(byte: number): readonly TreeNode[] {
    if (this.#byByte !== null) return this.#byByte.get(byte) ?? NONE;
    return byteOf(this.#only!) === byte ? [this.#only!] : NONE;
  }

  get all(): Iterable<TreeNode> {
    return this.#byId === null ? [this.#only!] : [...this.#byId.values()].flat();
  }

  #enter(child: TreeNode): void {
    enter(this.#byId!, child.ids[0]!, child);
    enter(this.#byByte!, byteOf(child), child);
  }
}

function enter(table: Map<number, TreeNode[]>, key: number, child: TreeNode): void {
  const list = table.get(key);
  if (list === undefined) table.set(key, [child]);
  else list.push(child);
}

function leave(table: Map<number, TreeNode[]>, key: number, child: TreeNode): void {
  const list = table.get(key)!;
  if (list.length === 1) table.delete(key);
  else list.splice(list.indexOf(child), 1);
}
