import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnEnd } from '../../../../test/harness/turn-end.ts';
import { KnownSession } from './known-session.ts';
import { Mark } from './mark.ts';
import { TreeNode } from './tree-node.ts';

test('a place knows no more of sessions that it has forgotten, whatever they sampled there', () => {
  const root = new TreeNode();
  const mark = new Mark(root, 1, 'turn', 0, 0);
  const ends = 3_000;
  for (let i = 0; i < ends; i++) {
    const session = `s${i}`;
    const owner = new KnownSession(session, root);
    for (const digest of [1, 2]) mark.put(turnEnd({ turn: `${i} ${digest}`, session, owner, digest }));
  }
  const sessions = Array.from({ length: ends }, (_, i) => `s${i}`);
  const known = sessions.filter((session) => mark.endOf(session) !== null);
  assert.ok(known.length < ends && known.includes(`s${ends - 1}`));
  assert.deepEqual(
    sessions.filter((session) => mark.isMixedIn(session)),
    known,
  );
});
