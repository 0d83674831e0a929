import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import { writeTokenizer } from '../../../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { words } from '../../../../../simulator/src/tokens/words.ts';
import { alignPrompt, alignSampled } from '../tokens/align.ts';
import { loadTokenizer } from '../tokens/load-tokenizer.ts';
import { exactIds } from './exact-prefix.ts';
import { turnEnd } from '../../../../test/harness/turn-end.ts';
import { TokenForest } from './forest.ts';
import { pathTo, tokensAt } from './path.ts';
import { type Place, type TreeNode, release } from './tree-node.ts';

const folder = mkdtempSync(join(tmpdir(), 'turnout-exact-'));
after(() => rmSync(folder, { recursive: true }));
writeTokenizer(folder);
const tokenizer = await loadTokenizer(folder, 'js');

class Trees {
  readonly forest = new TokenForest({ maxNodes: 1e6, maxBytes: 1e12, keepVersions: 5 });
  readonly root: TreeNode = this.forest.root('');

  prompt(text: string, from: Place = { node: this.root, at: 0 }): Place {
    const aligned = alignPrompt(tokenizer.pieces, Int32Array.from(encode(text)), Buffer.from(text), []);
    const end = this.forest.insert(from, { ...aligned, logprobs: null, isSampled: false }, 0);
    this.forest.markPrompt(end, 0);
    return end;
  }

  answer(from: Place, ids: readonly number[], text: string): void {
    const aligned = alignSampled(tokenizer.pieces, Int32Array.from(ids), Buffer.from(text));
    const logprobs = Float64Array.from(ids, () => -1);
    const visible = ids.length - (aligned.hiddenBytes > 0 ? 1 : 0);
    const { node, at } = this.forest.insert(from, { ...aligned, logprobs, isSampled: true }, 0);
    if (visible < ids.length && at > 1) this.forest.mark({ node, at: at - 1 }, 'seen', turnEnd({ turn: 't' }));
    const end = turnEnd({ turn: 't', tokens: node.depth + at, from: tokensAt(from) });
    this.forest.mark({ node, at }, 'turn', end, aligned.hiddenBytes);
  }

  async ids(text: string, endsTurn = false): Promise<number[]> {
    const { place, rest } = await exactIds(tokenizer, this.root, text, { endsTurn, addSpecial: true, session: null });
    release(place);
    assert.equal(place.node.isHeld, false);
    return [...pathTo(place).ids, ...rest];
  }
}

const text = fc
  .array(
    fc.constantFrom(
      ...words.slice(0, 12),
      ' of',
      ' often',
      'ten',
      ' ',
      '  ',
      '\n',
      '<|im_end|>',
      '<|im',
      'é',
      '😀',
      '{"a"',
    ),
    {
      maxLength: 14,
    },
  )
  .map((parts) => parts.join(''));

test('texts that were not sampled have the ids of their encoding, whatever is cached', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 8 }), text, async (cached, asked) => {
      const trees = new Trees();
      for (const [i, one] of cached.entries()) {
        assert.deepEqual(await trees.ids(one), encode(one));
        trees.prompt(one);
        assert.deepEqual(await trees.ids(one), encode(one));
        const mixed = cached[(i + 1) % cached.length]! + asked;
        for (const each of [one + asked, one.slice(0, -3).toWellFormed() + asked, mixed])
          assert.deepEqual(await trees.ids(each), encode(each));
      }
    }),
    { numRuns: 150 },
  );
});

test('sampled ids are kept whatever their text reads back as', async () => {
  const sampled = fc.array(fc.integer({ min: 264, max: 1023 }), { minLength: 1, maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(text, sampled, fc.boolean(), text, async (prompt, ids, stops, more) => {
      const trees = new Trees();
      const start = prompt === '' ? { node: trees.root, at: 0 } : trees.prompt(prompt);
      const said = decode(ids);
      trees.answer(start, stops ? [...ids, endOfTurn] : ids, said);
      const known = [...encode(prompt), ...ids];
      const stop = stops ? [endOfTurn] : [];
      assert.deepEqual(await trees.ids(prompt + said, true), [...known, ...stop]);
      assert.deepEqual(await trees.ids(`${prompt}${said}\n${more}`), [...known, ...encode(`\n${more}`)]);
      assert.deepEqual(await trees.ids(`${prompt}${said}<|im_end|>\n${more}`), [
        ...known,
        ...encode(`<|im_end|>\n${more}`),
      ]);
    }),
    { numRuns: 200 },
  );
});

test('an answer of which the client kept a part: sampled ids up to where a token ends', async () => {
  const trees = new Trees();
  const prompt = '<|im_start|>user\nsay<|im_end|>\n<|im_start|>assistant\n';
  // ' of' and 'ten' read back as ' often'.
  const drift = [...encode(' of'), ...encode('ten'), ...encode(' the'), ...encode(' world'), ...encode(' and')];
  trees.answer(trees.prompt(prompt), drift, decode(drift));
  assert.deepEqual(await trees.ids(`${prompt} often the world`), [...encode(prompt), ...drift.slice(0, 4)]);
  assert.deepEqual(await trees.ids(`${prompt} often the world\n`), [...encode(prompt), ...drift.slice(0, 4), 10]);
  assert.deepEqual(await trees.ids(`${prompt} often the worldly`), [
    ...encode(prompt),
    ...drift.slice(0, 4),
    ...encode('ly'),
  ]);
  assert.deepEqual(await trees.ids(`${prompt} often their`), [
    ...encode(prompt),
    ...drift.slice(0, 2),
    ...encode(' their'),
  ]);
});
