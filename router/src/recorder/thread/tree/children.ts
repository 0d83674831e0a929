import type { TreeNode } from './tree-node.ts';

const NONE: readonly TreeNode[] = [];

/** Up to so many are searched in a list; more are in tables, which take at least a quarter of a KB for each node. */
const MAX_LISTED = 8;

/** The children of a node, by first id and by first byte of text. Several may have both in common: the same id with other text. */
export class Children {
  /** null: they are in tables. */
  #list: readonly TreeNode[] | null;
  #byId: Map<number, TreeNode[]> | null = null;
  /** null, too, before the first search by text. */
  #byByte: Map<number, TreeNode[]> | null = null;

  constructor(first: TreeNode) {
    this.#list = [first];
  }

  add(child: TreeNode): void {
    if (this.#list !== null && this.#list.length < MAX_LISTED) {
      // A new list of exact size: `push` reserves space for 17.
      this.#list = [...this.#list, child];
      return;
    }
    if (this.#list !== null) {
      this.#byId = new Map();
      for (const listed of this.#list) this.#enter(listed);
      this.#list = null;
    }
    this.#enter(child);
  }

  /** @returns false: it was the last one */
  remove(child: TreeNode): boolean {
    if (this.#list !== null) {
      this.#list = this.#list.toSpliced(this.#list.indexOf(child), 1);
      return this.#list.length > 0;
    }
    leave(this.#byId!, child.firstId, child);
    if (this.#byByte !== null) leave(this.#byByte, child.firstByte, child);
    if (this.#byId!.size <= MAX_LISTED / 2) this.#toList();
    return true;
  }

  withId(id: number): readonly TreeNode[] {
    if (this.#list === null) return this.#byId!.get(id) ?? NONE;
    // Usually there is one or none: no list is made.
    if (this.#list.length === 1) return this.#list[0]!.firstId === id ? this.#list : NONE;
    let count = 0;
    for (const child of this.#list) if (child.firstId === id) count++;
    return count === 0 ? NONE : this.#list.filter((child) => child.firstId === id);
  }

  /** Children whose first token begins with `byte`; -1: has no text. */
  withByte(byte: number): readonly TreeNode[] {
    if (this.#list !== null) return this.#list.filter((child) => child.firstByte === byte);
    if (this.#byByte === null) {
      this.#byByte = new Map();
      for (const child of this.all) enter(this.#byByte, child.firstByte, child);
    }
    return this.#byByte.get(byte) ?? NONE;
  }

  get all(): Iterable<TreeNode> {
    return this.#list ?? [...this.#byId!.values()].flat();
  }

  /** Tables that have become small. */
  #toList(): void {
    const all = [...this.#byId!.values()].flat();
    if (all.length > MAX_LISTED) return;
    this.#list = all;
    this.#byId = null;
    this.#byByte = null;
  }

  #enter(child: TreeNode): void {
    enter(this.#byId!, child.firstId, child);
    if (this.#byByte !== null) enter(this.#byByte, child.firstByte, child);
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
