import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CaptureScene, tokenizerFolder, visible } from '../../../../test/harness/capture-scene.ts';
import { encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { often } from '../../../../test/harness/often.ts';

const tokenizerPath = tokenizerFolder();

const SESSIONS = 4_096;
const TURNS = often(2, 4);

test(`${SESSIONS} interleaved sessions of ${TURNS} turns at default limits: no turn is encoded again`, async () => {
  const scene = await CaptureScene.start({ tokenizerPath });
  const lines = Array.from({ length: SESSIONS }, (_, n) => ({ text: '', ids: [] as number[], name: `s${n}` }));
  for (let turn = 0; turn < TURNS; turn++) {
    for (const [n, line] of lines.entries()) {
      const closing = turn === 0 ? '' : '<|im_end|>';
      const more = `\n<|im_start|>user\n${n}.${turn}<|im_end|>\n<|im_start|>assistant\n`;
      // The two read back as one token, ' often'.
      const said = { ids: [...encode(' of'), ...encode('ten'), 264 + (n % 700), endOfTurn], logprob: -1 - n / 1e4 };
      const { ids, turn: kept } = await scene.ask({ session: line.name, prompt: line.text + closing + more, said });
      assert.deepEqual(ids, [...line.ids, ...encode(more)], `${line.name}, turn ${turn}`);
      assert.equal(kept.index, turn);
      line.text += closing + more + visible(said);
      line.ids = [...ids, ...said.ids];
    }
  }
  const { evictedNodes, nodes } = scene.captured.calls.captureStats();
  assert.equal(evictedNodes, 0);
  assert.ok(nodes > 10_000, 'more than the limit of nodes was by default');
});
