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
    return this.#byId!.size > 0;
  }

  withId(id: number): readonly TreeNode[] {
    return this.#list?.filter((child) => child.firstId === id) ?? this.#byId!.get(id) ?? NONE;
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
