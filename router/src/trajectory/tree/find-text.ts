import type { Mark, TreeNode } from './tree-node.ts';

/** Children that are looked into for one text: equal texts with different ids are rare, and an attacker's must not cost more. */
const MAX_VISITS = 4096;
/** Places inside of runs that are tried. */
const MAX_INSIDE = 4;

export interface Found {
  readonly node: TreeNode;
  readonly at: number;
  /** Bytes of the text that are covered. */
  readonly textBytes: number;
}

export interface TextMatch {
  /** The longest beginning of the text that ends where other tokens may follow; at the root: none. */
  readonly marked: Found & { readonly mark: Mark | null };
  /** Beginnings that are longer and end between any two tokens, the longest first. */
  readonly inside: readonly Found[];
  /**
   * Where the newest turn ended whose visible text ends with `text`: behind what stopped it. null where there is none, or where
   * something newer ends with the text itself.
   */
  readonly stopped: Found | null;
}

/** Walks down the tokens whose text `text` begins with. Of equally long ways the newest counts. */
export function findText(root: TreeNode, text: Buffer): TextMatch {
  let marked: Found & { mark: Mark | null } = { node: root, at: 0, textBytes: 0, mark: null };
  let inside: Found[] = [];
  let stopped: (Found & { mark: Mark }) | null = null;
  const stack: { node: TreeNode; textAt: number }[] = [];
  const push = (node: TreeNode, textAt: number): void => {
    for (const child of node.startingWith(text[textAt] ?? -1)) stack.push({ node: child, textAt });
  };
  push(root, 0);
  for (let visits = 0; stack.length > 0 && visits < MAX_VISITS; visits++) {
    const { node, textAt } = stack.pop()!;
    const { tokens, bytes } = node.match(text, textAt);
    for (const mark of node.marks ?? []) {
      if (mark.at > tokens) continue;
      const textBytes = textAt + node.textBefore(mark.at);
      if (mark.kind === 'prompt' && textBytes < text.length) continue;
      const isBetter =
        textBytes > marked.textBytes || (textBytes === marked.textBytes && mark.stamp > (marked.mark?.stamp ?? -1));
      if (isBetter) marked = { node, at: mark.at, textBytes, mark };
    }
    if (textAt + bytes === text.length) {
      const end = stoppedEnd(node, textAt, text.length);
      if (end !== null && end.mark.stamp > (stopped?.mark.stamp ?? -1)) stopped = end;
    }
    if (tokens === node.length) push(node, textAt + bytes);
    if (tokens > 0) inside.push({ node, at: tokens, textBytes: textAt + node.textBefore(tokens) });
  }
  inside = inside.filter(({ textBytes }) => textBytes > marked.textBytes);
  inside.sort((a, b) => b.textBytes - a.textBytes || newest(b.node) - newest(a.node));
  // A prompt that is asked again is no end of a turn: an answer without text stays one.
  const isNewest = marked.textBytes < text.length || marked.mark?.kind === 'prompt';
  const isStopped = stopped !== null && (isNewest || stopped.mark.stamp >= (marked.mark?.stamp ?? -1));
  return { marked, inside: inside.slice(0, MAX_INSIDE), stopped: isStopped ? stopped : null };
}

/** What stops a turn is a token or two. */
const STOP_NODES = 2;

/** The newest end of a turn, in a node or just below it, with so much visible text. */
function stoppedEnd(
  node: TreeNode,
  textAt: number,
  visible: number,
  depth = STOP_NODES,
): (Found & { mark: Mark }) | null {
  let best: (Found & { mark: Mark }) | null = null;
  for (const mark of node.marks ?? []) {
    if (mark.end === null || mark.hiddenBytes === 0) continue;
    if (textAt + node.textBefore(mark.at) - mark.hiddenBytes !== visible) continue;
    if (best === null || mark.stamp > best.mark.stamp) best = { node, at: mark.at, textBytes: visible, mark };
  }
  if (depth === 0) return best;
  for (const child of node.children) {
    const below = stoppedEnd(child, textAt + node.textBefore(node.length), visible, depth - 1);
    if (below !== null && (best === null || below.mark.stamp > best.mark.stamp)) best = below;
  }
  return best;
}

/** Where the longest beginning of `ids` ends. */
export function findIds(root: TreeNode, ids: Int32Array): Found {
  let best = root;
  let most = 0;
  const stack = [...root.withId(ids[0]!)];
  for (let visits = 0; stack.length > 0 && visits < MAX_VISITS; visits++) {
    const node = stack.pop()!;
    const shared = node.sharedIds(ids, node.depth);
    const end = node.depth + shared;
    if (end > most || (end === most && newest(node) > newest(best))) {
      most = end;
      best = node;
    }
    if (shared === node.length && end < ids.length) for (const child of node.withId(ids[end]!)) stack.push(child);
  }
  return { node: best, at: most - best.depth, textBytes: 0 };
}

/** The stamp of the newest mark in a node, -1 without one. */
function newest(node: TreeNode): number {
  let stamp = -1;
  for (const mark of node.marks ?? []) if (mark.stamp > stamp) stamp = mark.stamp;
  return stamp;
}
