import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  CaptureScene,
  type Said,
  logprobsOf,
  tokenizerFolder,
  visible,
} from '../../../../test/harness/capture-scene.ts';
import { encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import { type DamagedTurn, DamagedRecord, type NewestQuery } from '../store/store.ts';

const tokenizerPath = tokenizerFolder();

const PROMPT = '<|im_start|>user\nWhat is of ten?<|im_end|>\n<|im_start|>assistant\n';
const TOOL = '\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n';
/** It reads back as other ids, and its text leaves out two of its tokens. */
const CALL = [...encode('<tool_call> of'), ...encode('ten'), endOfTurn];
const call = (logprob: number): Said => ({ ids: CALL, logprob, text: ' often' });

const zeros = (ids: readonly unknown[]): number[] => ids.map(() => 0);
const ones = (ids: readonly unknown[]): number[] => ids.map(() => 1);

for (const kind of ['text', 'ids'] as const) {
  const asked = (text: string, ids: readonly number[]) => (kind === 'text' ? text : ids);

  test(`after a restart sessions go on exactly, prompts as ${kind}`, async () => {
    const before = await CaptureScene.start({ tokenizerPath });
    const names = ['a', 'b', 'c'];
    for (const [n, session] of names.entries()) {
      await before.ask({ session, prompt: asked(PROMPT, encode(PROMPT)), said: call(-1 - n) });
    }
    const text = `${PROMPT} often<|im_end|>${TOOL}`;
    const ids = [...encode(PROMPT), ...CALL, ...encode(TOOL)];
    const after = await CaptureScene.start({ tokenizerPath }, before.store);
    for (const n of [2, 0, 1]) {
      const session = names[n]!;
      const second = { ids: [...encode(' done'), endOfTurn], logprob: -10 - n };
      const { ids: sent, turn } = await after.ask({ session, prompt: asked(text, ids), said: second });
      assert.deepEqual(sent, ids);
      assert.equal(turn.parent, before.turns[n]!.id);
      assert.equal(turn.drift, null);
      const back = await after.retrieve(`${text} done`, session);
      assert.deepEqual(back.tokens, [...ids, ...second.ids]);
      const given = zeros(encode(TOOL));
      assert.deepEqual(back.loss_mask, [...zeros(encode(PROMPT)), ...ones(CALL), ...given, ...ones(second.ids)]);
      const logprobs = [...zeros(encode(PROMPT)), ...logprobsOf(call(-1 - n)), ...given, ...logprobsOf(second)];
      assert.deepEqual(back.rollout_logp, logprobs);
    }
    assert.equal(after.captured.calls.captureStats().restored, 3);
  });
}

test('after a restart a text without a session is found, once the trees are filled', async () => {
  const before = await CaptureScene.start({ tokenizerPath });
  await before.ask({ prompt: PROMPT, said: call(-1) });
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  const { ids } = await before.ask({ prompt: text, said: { ids: encode(' done'), logprob: -2 } });
  const after = await CaptureScene.start({ tokenizerPath }, before.store);
  after.captured.calls.fillTrees();
  const back = await after.retrieve(`${text} done`);
  assert.deepEqual(back.tokens, [...ids, ...encode(' done')]);
  assert.deepEqual(
    back.rollout_logp.filter((logprob) => logprob !== 0),
    [...logprobsOf(call(-1)), ...logprobsOf({ ids: encode(' done'), logprob: -2 })],
  );
  const { turn } = await after.ask({
    prompt: `${text} done<|im_end|>${TOOL}`,
    said: { ids: encode('ok'), logprob: -3 },
  });
  assert.equal(turn.parent, before.turns[1]!.id);
  assert.equal(turn.index, 2);
});

test('trees are filled with the newest turns, up to half of their limit, and what is used then stays', async () => {
  const before = await CaptureScene.start({ tokenizerPath });
  for (let n = 0; n < 400; n++) {
    await before.ask({ session: `s${n}`, prompt: `${PROMPT}${n}`, said: call(-1 - n) });
  }
  const maxBytes = 200_000;
  const after = await CaptureScene.start({ tokenizerPath, maxBytes }, before.store);
  const { calls } = after.captured;
  calls.fillTrees();
  // Without a session it waits for that.
  await after.retrieve('none');
  const { restored, bytes } = calls.captureStats();
  assert.ok(restored > 20 && restored < 200, String(restored));
  assert.ok(bytes > maxBytes / 2 && bytes < 0.6 * maxBytes, String(bytes));
  assert.equal((await after.retrieve(`${PROMPT}399 often`)).loss_mask.at(-1), 1, 'the newest is there');
  assert.equal((await after.retrieve(`${PROMPT}0 often`)).loss_mask.at(-1), 0, 'the oldest is not');
  assert.equal((await after.retrieve(`${PROMPT}0 often`, 's0')).loss_mask.at(-1), 1, 'its session brings it back');
  for (let n = 400; n < 700; n++) {
    await after.ask({ session: `s${n}`, prompt: `${PROMPT}${n}`, said: call(-1 - n) });
    assert.ok(calls.captureStats().bytes <= maxBytes);
  }
});

test('sessions whose turns do not fit into memory go on exactly', async () => {
  const scene = await CaptureScene.start({ tokenizerPath, maxBytes: 100_000 });
  const lines = Array.from({ length: 150 }, (_, n) => ({ session: `s${n}`, text: '', ids: [] as number[] }));
  for (let index = 0; index < 4; index++) {
    for (const [n, line] of lines.entries()) {
      const more = `\n<|im_start|>user\n${index}<|im_end|>\n<|im_start|>assistant\n`;
      line.text += index === 0 ? more : `<|im_end|>${more}`;
      line.ids.push(...encode(more));
      const said = { ...call(-1 - n), ids: [...CALL.slice(0, -1), 264 + n, endOfTurn] };
      const whole = { ...said, text: visible({ ...said, text: undefined }).replace('<tool_call>', '') };
      const { ids, turn } = await scene.ask({ session: line.session, prompt: line.text, said: whole });
      assert.deepEqual(ids, line.ids);
      assert.deepEqual([turn.index, turn.drift], [index, null]);
      line.text += whole.text;
      line.ids.push(...said.ids);
    }
  }
  const { restored, evictedNodes, evictedLiveTurns, lost } = scene.captured.calls.captureStats();
  assert.ok(evictedNodes > 500 && restored > 300 && evictedLiveTurns > 300);
  assert.equal(lost, 0);
});

test('a session whose own turns do not fit into memory goes on exactly, from its oldest turn too', async () => {
  const maxBytes = 20_000;
  const scene = await CaptureScene.start({ tokenizerPath, maxBytes });
  for (let n = 0; n < 30; n++) await scene.ask({ session: 'a', prompt: `${n} ${PROMPT}`, said: call(-1 - n) });
  const text = `0 ${PROMPT} often<|im_end|>${TOOL}`;
  const { turn } = await scene.ask({ session: 'a', prompt: text, said: call(-40) });
  assert.deepEqual([turn.parent, turn.keeps, turn.drift], [scene.turns[0]!.id, scene.turns[0]!.ids.length, null]);
  const back = await scene.retrieve(`1 ${PROMPT} often`, 'a');
  assert.deepEqual(
    back.rollout_logp.filter((logprob) => logprob !== 0),
    logprobsOf(call(-2)),
  );
  const { bytes, evictedNodes } = scene.captured.calls.captureStats();
  assert.ok(evictedNodes > 30 && bytes <= maxBytes, `${evictedNodes} nodes, ${bytes} bytes`);
});

for (const asks of ['prompt', 'retrieve'] as const) {
  test(`what a session is given back for a text that is refused (${asks}) is no more than fits`, async () => {
    const maxBytes = 20_000;
    const scene = await CaptureScene.start({ tokenizerPath, maxBytes });
    for (let n = 0; n < 30; n++) await scene.ask({ session: 'a', prompt: `${n} ${PROMPT}`, said: call(-1 - n) });
    const text = 'of '.repeat(2_000_000);
    if (asks === 'prompt') await assert.rejects(scene.ask({ session: 'a', prompt: text, said: call(-40) }), /at most/);
    else await assert.rejects(scene.retrieve(text, 'a'), /at most/);
    const { bytes, restored } = scene.captured.calls.captureStats();
    assert.ok(restored > 0 && bytes <= maxBytes, `${restored} turns, ${bytes} bytes`);
  });
}

test('a session whose turns are neither in memory nor in the store is flagged, and continues no turn of another one', async () => {
  const scene = await CaptureScene.start({ tokenizerPath, maxBytes: 400_000 });
  for (const session of ['a', 'b']) await scene.ask({ session, prompt: PROMPT, said: call(-1) });
  scene.store.removeSession('a');
  for (let n = 0; scene.captured.calls.captureStats().evictedNodes < 5; n++) {
    await scene.ask({ session: `s${n}`, prompt: `${n} ${PROMPT}`, said: call(-1) });
  }
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  const { turn: other } = await scene.ask({ session: 'b', prompt: text, said: call(-2) });
  assert.deepEqual([other.index, other.drift], [1, null]);
  const back = await scene.retrieve(`${PROMPT} often`, 'a');
  assert.deepEqual([back.drift, back.loss_mask.includes(1)], [{ kind: 'lost', at: 0 }, false]);
  const { turn } = await scene.ask({ session: 'a', prompt: text, said: call(-3) });
  assert.deepEqual([turn.parent, turn.drift], [null, { kind: 'lost', at: 0 }]);
  const next = `${text} often<|im_end|>${TOOL}`;
  const { turn: last } = await scene.ask({ session: 'a', prompt: next, said: call(-4) });
  assert.deepEqual([last.parent, last.drift], [turn.id, null], 'from then on it is known');
  assert.equal(scene.captured.calls.captureStats().lost, 1);
});

test('a session with a turn without sampled tokens goes on exactly after a restart', async () => {
  const before = await CaptureScene.start({ tokenizerPath });
  await before.ask({ session: 'a', prompt: PROMPT, said: call(-1) });
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  // As SGLang answers the abort of a request in its queue.
  const { turn: empty } = await before.ask({
    session: 'a',
    prompt: text,
    said: { ids: [], logprob: 0, finish: 'abort' },
  });
  assert.deepEqual([empty.parent, empty.outputTokens], [before.turns[0]!.id, 0]);
  const after = await CaptureScene.start({ tokenizerPath }, before.store);
  const { turn } = await after.ask({ session: 'a', prompt: text, said: call(-2) });
  assert.deepEqual([turn.parent, turn.drift], [before.turns[0]!.id, null]);
  assert.equal(after.captured.calls.captureStats().lost, 0);
});

test('a turn whose beginning was removed is not brought back, and its session is flagged', async () => {
  const before = await CaptureScene.start({ tokenizerPath });
  await before.ask({ session: 'a', prompt: PROMPT, said: call(-1) });
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  // It forks.
  await before.ask({ session: 'b', prompt: text, said: call(-2) });
  before.store.removeSession('a');
  const after = await CaptureScene.start({ tokenizerPath }, before.store);
  const next = `${text} often<|im_end|>${TOOL}`;
  const { turn } = await after.ask({ session: 'b', prompt: next, said: call(-3) });
  assert.deepEqual([turn.parent, turn.drift], [null, { kind: 'lost', at: 0 }]);
});

test('a session that another one forked from is brought back with it', async () => {
  const before = await CaptureScene.start({ tokenizerPath });
  await before.ask({ session: 'a', prompt: PROMPT, said: call(-1) });
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  const { turn: fork } = await before.ask({ session: 'b', prompt: text, said: call(-2) });
  const after = await CaptureScene.start({ tokenizerPath }, before.store);
  const next = `${text} often<|im_end|>${TOOL}`;
  const back = await after.retrieve(`${text} often`, 'b');
  assert.equal(back.loss_mask.filter((bit) => bit === 1).length, 2 * CALL.length);
  const { ids, turn } = await after.ask({ session: 'b', prompt: next, said: call(-3) });
  assert.deepEqual(ids, [...encode(PROMPT), ...CALL, ...encode(TOOL), ...CALL, ...encode(TOOL)]);
  assert.deepEqual([turn.parent, turn.drift], [fork.id, null]);
});

test('what sessions that are over used goes first', async () => {
  const scene = await CaptureScene.start({ tokenizerPath, maxBytes: 280_000 }, new MemoryStore(1e9));
  for (let n = 0; n < 40; n++) await scene.ask({ session: `s${n}`, prompt: `${n} ${PROMPT}`, said: call(-1 - n) });
  // The newest ones end.
  for (let n = 20; n < 40; n++) scene.captured.ended({ session: `s${n}`, tenant: '' });
  const { evictedNodes: before } = scene.captured.calls.captureStats();
  assert.equal(before, 0);
  let n = 40;
  while (scene.captured.calls.captureStats().evictedNodes < 20) {
    await scene.ask({ session: `s${n}`, prompt: `${n} ${PROMPT}`, said: call(-1 - n++) });
  }
  assert.equal(scene.captured.calls.captureStats().evictedLiveTurns, 0);
  const { restored } = scene.captured.calls.captureStats();
  for (let old = 0; old < 20; old++) await scene.retrieve(`${old} ${PROMPT} often`, `s${old}`);
  assert.equal(scene.captured.calls.captureStats().restored, restored, 'those that had not ended are still there');
});

test('a store that can not be read costs a session its exactness for now, flagged, and no longer', async () => {
  const store = new MemoryStore(1e9);
  const scene = await CaptureScene.start({ tokenizerPath, maxBytes: 400_000 }, store);
  await scene.ask({ session: 'a', prompt: PROMPT, said: call(-1) });
  for (let n = 0; scene.captured.calls.captureStats().evictedNodes < 5; n++) {
    await scene.ask({ session: `s${n}`, prompt: `${n} ${PROMPT}`, said: call(-1) });
  }
  const newest = store.newest.bind(store);
  store.newest = () => {
    throw new Error('it is away');
  };
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  assert.deepEqual((await scene.retrieve(`${PROMPT} often`, 'a')).drift, { kind: 'lost', at: 0 });
  store.newest = newest;
  const { turn } = await scene.ask({ session: 'a', prompt: text, said: call(-2) });
  assert.deepEqual([turn.index, turn.parent, turn.drift], [1, scene.turns[0]!.id, null]);
});

/** As if the record of a turn were damaged. */
function damage(store: MemoryStore, id: string): void {
  const [newest, get] = [store.newest.bind(store), store.get.bind(store)];
  const fail = (): never => {
    throw new DamagedRecord(`turn ${id}`, new Error('no JSON'));
  };
  Object.assign(store, {
    get: (asked: string) => (asked === id ? fail() : get(asked)),
    newest: (query: NewestQuery, onDamaged: (turn: DamagedTurn) => void = fail) => {
      const turns = newest(query);
      for (const turn of turns) if (turn.id === id) onDamaged(turn);
      return turns.filter((turn) => turn.id !== id);
    },
  });
}

test('a damaged turn keeps no other one from the trees, and is missing in its own session', async () => {
  const before = await CaptureScene.start({ tokenizerPath });
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  await before.ask({ session: 'a', prompt: PROMPT, said: call(-1) });
  // More than are read at once.
  for (let n = 0; n < 100; n++) await before.ask({ session: `s${n}`, prompt: `${n} ${PROMPT}`, said: call(-1) });
  await before.ask({ session: 'b', prompt: PROMPT, said: call(-1) });
  const { turn: second } = await before.ask({ session: 'b', prompt: text, said: call(-2) });
  damage(before.store, second.id);
  const after = await CaptureScene.start({ tokenizerPath }, before.store);
  after.captured.calls.fillTrees();
  await after.retrieve(PROMPT);
  assert.equal(after.captured.calls.captureStats().restored, 102);
  assert.equal((await after.retrieve(`${PROMPT} often`, 'a')).drift, undefined);
  const back = await after.retrieve(`${text} often<|im_end|>${TOOL}`, 'b');
  assert.equal(back.drift?.kind, 'lost');
  assert.equal(back.loss_mask.filter((bit) => bit === 1).length, CALL.length, 'its first turn is there');
});
