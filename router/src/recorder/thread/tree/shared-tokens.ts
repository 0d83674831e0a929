import { type Run, pieceOf } from './run.ts';
import type { TreeNode } from './tree-node.ts';

/** The child that begins with the run's token `done`, with the same text. */
export function childFor(node: TreeNode, run: Run, done: number): TreeNode | null {
  for (const child of node.withId(run.ids[done]!)) if (sharedTokens(child, 0, run, done) > 0) return child;
  return null;
}

/** How many tokens are the same, with the same text, from both places on. */
export function sharedTokens(node: TreeNode, at: number, run: Run, done: number): number {
  const most = Math.min(node.length - at, run.ids.length - done);
  if (node.spelling !== null || run.spelling !== null) return sharedSpelled(node, at, run, done);
  const shift = node.textBefore(at) - (done === 0 ? 0 : run.ends[done - 1]!);
  let shared = 0;
  while (
    shared < most &&
    node.ids[at + shared] === run.ids[done + shared] &&
    node.textBefore(at + shared + 1) === run.ends[done + shared]! + shift
  )
    shared++;
  if (shared === 0) return 0;
  const from = node.textBefore(at);
  const to = node.textBefore(at + shared);
  const { text } = node;
  if (text.compare(run.text, from - shift, to - shift, from, to) === 0) return shared;
  // Rare: the same ids and lengths with other text, as pieces that could not be taken apart have.
  for (let i = 0; i < shared; i++) {
    const start = node.textBefore(at + i);
    const end = node.textBefore(at + i + 1);
    if (text.compare(run.text, start - shift, end - shift, start, end) !== 0) return i;
  }
  return shared;
}

/** The same where one of them, or both, are spelled. */
function sharedSpelled(node: TreeNode, at: number, run: Run, done: number): number {
  const most = Math.min(node.length - at, run.ids.length - done);
  const isAlike = node.spelling === run.spelling;
  let shared = 0;
  while (
    shared < most &&
    node.ids[at + shared] === run.ids[done + shared] &&
    (isAlike || node.pieceAt(at + shared).equals(pieceOf(run, done + shared)))
  )
    shared++;
  return shared;
}
