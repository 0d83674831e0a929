import { type Mark, type TurnEnd, isNewer } from './mark.ts';
import type { TreeNode } from './tree-node.ts';

/** The number of ends that a session has; older ones are found only on the path to a place. */
const MAX_ENDS = 1_024;
/** How far back the chain of a turn is searched for a turn of another session. */
const MAX_LINE = 256;

/** The ends of the turns of a session in a tree. */
export class KnownSession {
  readonly name: string;
  readonly root: TreeNode;
  /** By turn, the oldest first, and the mark at the end of the whole turn. */
  readonly ends = new Map<string, { readonly end: TurnEnd; readonly mark: Mark }>();
  /** All turns of it that the store has were in the tree since the start. */
  isWhole = false;
  /** The newest evicted turn that is still missing; null: none. */
  missing: string | null = null;
  /** The newest turn that could not be loaded; null: none. */
  lost: string | null = null;
  /** A turn of another session continues one of this session. */
  isForked = false;

  constructor(name: string, root: TreeNode) {
    this.name = name;
    this.root = root;
  }

  add(end: TurnEnd, mark: Mark): void {
    this.ends.set(end.turn, { end, mark });
    if (end.turn === this.missing) this.missing = null;
    if (end.turn === this.lost) this.lost = null;
    if (this.ends.size > MAX_ENDS) this.ends.delete(this.ends.keys().next().value!);
  }

  /** A turn was evicted. */
  lose(turn: string): void {
    this.ends.delete(turn);
    this.missing = newer(turn, this.missing);
  }

  /** A turn could not be loaded. @param turn null: none */
  notLoaded(turn: string | null): void {
    if (turn !== null) this.lost = newer(turn, this.lost);
  }

  /** The end at a mark that belongs to this session: a turn of it, or one of another session that continues it. */
  at(mark: Mark): TurnEnd | null {
    const own = mark.endOf(this.name);
    if (own !== null || !this.isForked) return own;
    let newest: TurnEnd | null = null;
    for (const end of mark.ends()) if (isNewer(end, newest) && this.#isContinuedBy(end)) newest = end;
    return newest;
  }

  #isContinuedBy(end: TurnEnd): boolean {
    let turn: TurnEnd | null = end.parent;
    for (let i = 0; turn !== null && i < MAX_LINE; i++) {
      if (turn.owner === this) return true;
      turn = turn.parent;
    }
    return false;
  }
}

/** Identifiers of turns are in the order in which the turns began. */
const newer = (turn: string, than: string | null): string => (than === null || turn > than ? turn : than);
