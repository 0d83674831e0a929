import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import { memoryUsed } from '../../../../test/harness/memory-used.ts';
import { turnEnd } from '../../../../test/harness/turn-end.ts';
import { SESSION_IDLE_MS } from '../../shared/memory-limit.ts';
import { TokenPieces } from '../tokens/pieces.ts';
import { continuedAt } from './continued.ts';
import { findIds, findText } from './find-text.ts';
import { TokenForest } from './forest.ts';
import type { TurnEnd } from './mark.ts';
import { idsTo, lineTo, pathTo, textFrom, tokensAt } from './path.ts';
import type { Run } from './run.ts';
import { type Place, type TreeNode, release } from './tree-node.ts';

const unlimited = { maxNodes: 1e6, maxBytes: 1e12, keepVersions: 5 };

interface Line {
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  readonly end: TurnEnd | null;
}

/** Ids 0 to 9 stand for pieces in which some are the same text, and some are nothing. */
const pieces = ['a', 'b', 'ab', 'ba', '', 'abc', 'c', 'é', 'a', ''];

const spelling = new TokenPieces({ model: { vocab: pieces.map((piece) => [piece]) }, decoder: { type: 'Metaspace' } });
assert.ok(spelling.areKnown(Int32Array.from(pieces.keys())));

interface Given {
  readonly ids: readonly number[];
  /** Without its text, as each token has the one that it stands for. */
  readonly isSpelled?: boolean;
  readonly isSampled: boolean;
}

function runOf({ ids, isSpelled = false, isSampled }: Given, logprob: number): Run {
  const parts = ids.map((id) => Buffer.from(pieces[id]!));
  let end = 0;
  return {
    ids: Int32Array.from(ids),
    spelling: isSpelled ? spelling : null,
    ends: isSpelled ? new Uint32Array(0) : Uint32Array.from(parts, ({ length }) => (end += length)),
    text: isSpelled ? Buffer.alloc(0) : Buffer.concat(parts),
    logprobs: isSampled ? Float64Array.from(ids, (_, i) => logprob + i / 100) : null,
    isSampled,
  };
}

const firstIds = (root: TreeNode): number[] =>
  Array.from(root.children, ({ ids }) => ids[0]!).toSorted((a, b) => a - b);

const textOf = (ids: readonly number[]): string => ids.map((id) => pieces[id]!).join('');

/** Checks that every node is what the trie says it is. */
function check(forest: TokenForest, root: TreeNode): void {
  let nodes = 0;
  let bytes = 0;
  const walk = (node: TreeNode): void => {
    for (const child of node.children) {
      nodes++;
      bytes += child.bytes;
      assert.ok(child.length > 0 && child.parent === node);
      assert.equal(child.depth, node.depth + node.length);
      const text = Buffer.concat(Array.from({ length: child.length }, (_, at) => child.pieceAt(at)));
      assert.equal(text.toString(), textOf([...child.ids]));
      assert.equal(child.textBefore(child.length), text.length);
      assert.equal(child.firstByte, child.textBefore(1) === 0 ? -1 : text[0]);
      if (child.spelling === null) assert.ok(child.text.equals(text));
      assert.ok(child.version <= node.version || node.parent === null);
      for (const mark of child.marks ?? []) assert.ok(mark.at > 0 && mark.at <= child.length);
      for (const place of child.places ?? []) assert.equal(place.node, child);
      walk(child);
    }
  };
  walk(root);
  assert.equal(forest.nodes, nodes);
  assert.equal(forest.bytes - forest.sessionBytes, bytes);
}

const run = fc.record({
  ids: fc.array(fc.nat(9), { minLength: 1, maxLength: 6 }),
  isSampled: fc.boolean(),
  isSpelled: fc.boolean(),
});
const trajectories = fc.array(fc.array(run, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 14 });

test('what was put in is found by its ids, with its logprobs and mask, as a list of trajectories would have it', () => {
  fc.assert(
    fc.property(trajectories, fc.array(fc.array(fc.nat(9), { maxLength: 12 }), { maxLength: 5 }), (all, asked) => {
      const forest = new TokenForest(unlimited);
      const root = forest.root('');
      /** Of every prefix, by its ids: what is known of its last token. */
      const model = new Map<string, { isSampled: boolean; logprob: number }>();
      for (const [n, runs] of all.entries()) {
        let place: Place = { node: root, at: 0 };
        const ids: number[] = [];
        for (const [r, given] of runs.entries()) {
          const one = runOf(given, n * 10 + r);
          place = forest.insert(place, one, 0);
          for (const [i, id] of given.ids.entries()) {
            ids.push(id);
            const known = model.get(ids.join());
            if (known?.isSampled === true) continue;
            if (given.isSampled) model.set(ids.join(), { isSampled: true, logprob: one.logprobs![i]! });
            else if (known === undefined) model.set(ids.join(), { isSampled: false, logprob: 0 });
          }
          forest.markPrompt(place, 0);
          assert.deepEqual([...pathTo(place).ids], ids);
        }
        check(forest, root);
      }
      for (const ids of [...asked, ...all.map((runs) => runs.flatMap((each) => each.ids))]) {
        const found = findIds(root, Int32Array.from(ids));
        let longest = 0;
        while (longest < ids.length && model.has(ids.slice(0, longest + 1).join())) longest++;
        assert.equal(tokensAt(found), longest);
        const path = pathTo(found);
        assert.deepEqual([...path.ids], ids.slice(0, longest));
        for (let i = 0; i < longest; i++) {
          const known = model.get(ids.slice(0, i + 1).join())!;
          assert.equal(path.mask[i], known.isSampled ? 1 : 0);
          assert.equal(path.logprobs[i], known.logprob);
        }
        const from = Math.min(2, longest);
        assert.deepEqual([...idsTo(found, from)], ids.slice(from, longest));
      }
    }),
    { numRuns: 400 },
  );
});

test('a text is found as far as a marked end, and of equal texts the newest ids', () => {
  fc.assert(
    fc.property(trajectories, fc.array(fc.constantFrom('a', 'b', 'c', 'é'), { maxLength: 12 }), (all, letters) => {
      const forest = new TokenForest(unlimited);
      const root = forest.root('');
      const ends: { ids: number[]; text: string }[] = [];
      let turns = 1000;
      for (const runs of all) {
        let place: Place = { node: root, at: 0 };
        let ids: number[] = [];
        for (const given of runs) {
          place = forest.insert(place, runOf(given, 0), 0);
          forest.mark(place, 'seen', turnEnd({ turn: `${turns++}` }));
          ids = ids.concat(given.ids);
          ends.push({ ids, text: textOf(ids) });
        }
      }
      for (const text of [letters.join(''), ...ends.map((end) => end.text)]) {
        let best: { ids: number[]; text: string } | undefined;
        for (const end of ends) {
          if (text.startsWith(end.text) && end.text.length >= (best?.text.length ?? 0)) best = end;
        }
        const { marked, inside } = findText(root, Buffer.from(text));
        assert.equal(marked.textBytes, Buffer.byteLength(best?.text ?? ''));
        if (best !== undefined) assert.deepEqual([...pathTo(marked).ids], best.ids);
        for (const found of inside) {
          assert.ok(found.textBytes > marked.textBytes);
          assert.ok(text.startsWith(textOf([...pathTo(found).ids])));
        }
      }
    }),
    { numRuns: 400 },
  );
});

test('a long prompt has its text, and an answer of many versions the newest one', () => {
  const forest = new TokenForest(unlimited);
  const ids = Array.from({ length: 500_000 }, (_, i) => i % 4);
  const end = forest.insert({ node: forest.root(''), at: 0 }, runOf({ ids, isSpelled: true, isSampled: false }, 0), 0);
  assert.equal(textFrom(end, 0).toString(), textOf(ids));
  const spans = ids.map((_, i) => ({ version: `${i % 7}`, from: i, to: i + 1 }));
  assert.equal(forest.versions.newestOf(spans), 6);
});

test('places stay right while nodes are split, and what is held stays', () => {
  const forest = new TokenForest({ maxNodes: 0, maxBytes: 1e9, keepVersions: 5 });
  const root = forest.root('');
  const start = { node: root, at: 0 };
  const end = forest.insert(start, runOf({ ids: [0, 1, 6, 7], isSampled: false }, 0), 0);
  const [early, late] = [end.node.hold(2), end.node.hold(4)];
  forest.insert(start, runOf({ ids: [0, 1, 6, 0], isSampled: false }, 0), 0);
  forest.insert(start, runOf({ ids: [0, 3], isSampled: false }, 0), 0);
  assert.deepEqual([...pathTo(early).ids], [0, 1]);
  assert.deepEqual([...pathTo(late).ids], [0, 1, 6, 7]);
  forest.trim();
  check(forest, root);
  assert.deepEqual([...pathTo(late).ids], [0, 1, 6, 7]);
  assert.equal(forest.nodes, 3, 'the branches are gone, the held way stays');
  release(early);
  release(late);
  forest.trim();
  assert.equal(forest.nodes, 0);
  assert.equal(forest.trees, 0);
});

test('the least recently used goes first', () => {
  const forest = new TokenForest({ ...unlimited, maxNodes: 2 });
  const root = forest.root('');
  const put = (...ids: number[]): Place => forest.insert({ node: root, at: 0 }, runOf({ ids, isSampled: false }, 0), 0);
  const first = put(0, 0);
  put(1, 1);
  forest.touch(first);
  put(6, 6);
  forest.trim();
  assert.deepEqual(firstIds(root), [0, 6]);
  assert.equal(forest.counts.evictedNodes, 1);
});

for (const [kind, versions] of [
  ['whole numbers', ['1', '2', '3', '4', '5', '6']],
  ['names', ['default', 'b', 'c', 'd', 'e', 'f']],
] as const) {
  test(`nodes of weights five versions old are collected, versions as ${kind}`, () => {
    let nowMs = 0;
    const forest = new TokenForest(unlimited, () => nowMs);
    const root = forest.root('');
    const put = (version: string, ...ids: number[]): void => {
      forest.insert({ node: root, at: 0 }, runOf({ ids, isSampled: true }, 0), forest.versions.ordinalOf(version));
      forest.trim();
    };
    put(versions[0], 0, 0);
    put(versions[0], 1, 1);
    for (const version of versions.slice(1, 5)) put(version, 6, 6);
    assert.equal(forest.nodes, 3);
    put(versions[1], 1, 1, 1);
    nowMs += SESSION_IDLE_MS;
    put(versions[1], 1, 1, 1);
    put(versions[5], 6, 6);
    assert.deepEqual(firstIds(root), [1, 6], 'what was used since stays');
    assert.equal(forest.counts.collectedNodes, 1);
  });
}

test('what a running request holds is not collected, however old its weights are', () => {
  let nowMs = 0;
  const forest = new TokenForest(unlimited, () => nowMs);
  const root = forest.root('');
  const put = (version: string, ...ids: number[]) => {
    const place = forest.insert(
      { node: root, at: 0 },
      runOf({ ids, isSampled: true }, 0),
      forest.versions.ordinalOf(version),
    );
    forest.trim();
    return place;
  };
  const { node, at } = put('1', 0, 0);
  const held = node.hold(at);
  nowMs += SESSION_IDLE_MS;
  put('9', 1, 1);
  assert.deepEqual(firstIds(root), [0, 1]);
  release(held);
  put('10', 1, 1);
  assert.deepEqual(firstIds(root), [1]);
});

test('which turn is gone on with, and how much of it is kept', () => {
  const forest = new TokenForest(unlimited);
  const root = forest.root('');
  const prompt = forest.insert({ node: root, at: 0 }, runOf({ ids: [0, 1], isSampled: false }, 0), 0);
  forest.markPrompt(prompt, 0);
  const answer = forest.insert(prompt, runOf({ ids: [6, 7, 0], isSampled: true }, -1), 0);
  const end = turnEnd({ turn: 't1', tokens: 5, from: 2 });
  forest.mark(answer, 'turn', end);
  assert.equal(continuedAt(prompt, null), null, 'another sample of the same prompt continues nothing');
  const whole = { end, keeps: 5, isAmbiguous: false };
  assert.deepEqual(continuedAt(answer, null), whole);
  const tool = forest.insert(answer, runOf({ ids: [1, 1], isSampled: false }, 0), 0);
  assert.deepEqual(continuedAt(tool, null), whole);
  const inside = findIds(root, Int32Array.of(0, 1, 6, 7));
  assert.deepEqual(continuedAt(inside, null), { ...whole, keeps: 4 }, 'a part of what was sampled');
});

test('samples that begin with the same tokens have their own logprobs, each', () => {
  const sampled = fc.array(fc.nat(2), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(20), sampled), { maxLength: 12 }), (all) => {
      const forest = new TokenForest(unlimited);
      const root = forest.root('');
      forest.insert({ node: root, at: 0 }, runOf({ ids: [0], isSampled: false }, 0), 0);
      const ends = new Map<string, Line>([['0', { ids: [0], logprobs: [0], end: null }]]);
      for (const [n, [parent, ids]] of all.entries()) {
        // Another sample of what one of them goes on from, or its next turn.
        const before = [...ends.values()][parent % ends.size]!;
        const one = runOf({ ids, isSampled: true }, -1 - n);
        const line = { ids: [...before.ids, ...ids], logprobs: [...before.logprobs, ...one.logprobs!] };
        // Of equal ones the newest counts, for those that go on from it, too.
        if (ends.has(line.ids.join())) continue;
        const { shared, ...place } = forest.insert(findIds(root, Int32Array.from(before.ids)), one, 0);
        const from = before.ids.length;
        const own = shared === 0 ? null : one.logprobs!.slice(0, shared);
        const [tokens, keeps] = [line.ids.length, before.end?.tokens ?? 0];
        const end = turnEnd({ turn: `${n + 100}`, tokens, from, own, parent: before.end, keeps });
        forest.mark(place, 'turn', end);
        ends.set(line.ids.join(), { ...line, end });
      }
      check(forest, root);
      for (const { ids, logprobs } of ends.values()) {
        const place = findIds(root, Int32Array.from(ids));
        assert.deepEqual([...lineTo(place, continuedAt(place, null)).logprobs], logprobs);
      }
    }),
    { numRuns: 400 },
  );
});

test('memory stays within its limit', () => {
  // A million of the same: `npm run bench -- radix-memory`.
  const maxBytes = 8_000_000;
  const forest = new TokenForest({ maxNodes: 1_000_000, maxBytes, keepVersions: 5 });
  const root = forest.root('');
  let seed = 1;
  const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
  const idle = memoryUsed();
  for (let i = 1; i <= 24_000; i++) {
    const ids = Array.from({ length: 1 + random(40) }, () => random(10));
    const end = forest.insert({ node: root, at: 0 }, runOf({ ids, isSampled: i % 2 === 0 }, 0), 0);
    const name = `${i}`.padStart(30, '-');
    const own = end.shared === 0 ? null : new Float64Array(end.shared);
    const session = `s${name}`;
    const owner = i % 3 === 0 ? null : forest.session(root, session);
    forest.mark(end, 'turn', turnEnd({ turn: name, session, owner, tokens: ids.length, own, digest: i }));
    forest.trim();
    assert.ok(forest.bytes <= maxBytes);
    if (i % 6_000 !== 0) continue;
    // Not only by its own count. The margin is for what the test runner and the compiler keep meanwhile.
    const grown = memoryUsed() - idle;
    assert.ok(grown <= 1.1 * maxBytes, `${grown} bytes after ${i}`);
    assert.ok(forest.bytes > 0.95 * maxBytes);
  }
  check(forest, root);
  assert.ok(forest.counts.evictedNodes > 15_000);
});
