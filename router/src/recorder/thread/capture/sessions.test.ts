import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Said,
  CaptureScene,
  logprobsOf,
  tokenizerFolder,
  visible,
} from '../../../../test/harness/capture-scene.ts';
import { assemble } from '../export/trajectory.ts';
import { decode, encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import type { Turn } from '../../shared/turn.ts';
import { HeapLimits } from '../heap-limits.ts';
import { MemoryStore } from '../store/memory.ts';

const tokenizerPath = tokenizerFolder();
const start = () => CaptureScene.start({ tokenizerPath, keepVersions: 1e6 });

const PROMPT = '<|im_start|>user\nWhat is of ten?<|im_end|>\n<|im_start|>assistant\n';
const TOOL = '\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n';
/** Reads back as other ids. */
const CALL = [...encode(' of'), ...encode('ten'), ...encode(' call'), endOfTurn];

const said = (logprob: number, ids: readonly number[] = CALL): Said => ({ ids, logprob, version: `${-logprob}` });

/** The trajectory that ends with a turn. */
function lineOf(scene: CaptureScene, last: Turn) {
  const turns: Turn[] = [];
  for (let turn: Turn | undefined = last; turn !== undefined;) {
    turns.unshift(turn);
    const parent: string | null = turn.parent;
    turn = scene.turns.find(({ id }) => id === parent);
  }
  const line = assemble(turns);
  assert.ok(typeof line !== 'string', 'the trajectory is whole');
  return line;
}

/** Checks a trajectory of two turns. */
function assertLine(
  scene: CaptureScene,
  last: Turn,
  [first, second]: readonly [Said, Said],
  given: readonly number[],
): void {
  const { ids, logprobs, mask, versions } = lineOf(scene, last);
  const prompt = encode(PROMPT);
  assert.deepEqual([...ids], [...prompt, ...first.ids, ...given, ...second.ids]);
  const zeros = (list: readonly number[]): number[] => list.map(() => 0);
  assert.deepEqual([...logprobs], [...zeros(prompt), ...logprobsOf(first), ...zeros(given), ...logprobsOf(second)]);
  const ones = (turn: Said): number[] => turn.ids.map(() => 1);
  assert.deepEqual([...mask], [...zeros(prompt), ...ones(first), ...zeros(given), ...ones(second)]);
  const named = versions.map(({ version }) => version);
  assert.deepEqual(named, [first.version, second.version]);
}

for (const kind of ['text', 'ids'] as const) {
  const asked = (text: string, ids: readonly number[]) => (kind === 'text' ? text : ids);

  test(`sessions with equal first turns: each goes on from its own, prompts as ${kind}`, async () => {
    const scene = await start();
    const names = Array.from({ length: 40 }, (_, n) => `s${n}`);
    for (const [n, session] of names.entries()) {
      await scene.ask({ session, prompt: asked(PROMPT, encode(PROMPT)), said: said(-1 - n) });
    }
    const text = PROMPT + visible(said(0)) + '<|im_end|>' + TOOL;
    // The last one first, and in between.
    for (const n of [39, 0, 17, 5, 38, 1]) {
      const first = said(-1 - n);
      const second = said(-100 - n, encode('done'));
      const prompt = asked(text, [...encode(PROMPT), ...CALL, ...encode(TOOL)]);
      const { ids, turn } = await scene.ask({ session: names[n]!, prompt, said: second });
      assert.deepEqual(ids, [...encode(PROMPT), ...CALL, ...encode(TOOL)]);
      assert.equal(turn.session, names[n]);
      assert.equal(turn.index, 1);
      assert.equal(turn.isAmbiguous, undefined);
      assertLine(scene, turn, [first, second], encode(TOOL));
      const back = await scene.retrieve(text + visible(second), names[n]);
      assert.deepEqual(back.rollout_logp, [...lineOf(scene, turn).logprobs]);
      assert.equal('ambiguous' in back, false);
    }
  });

  test(`without a session the newest of turns that differ counts, and the record says so, prompts as ${kind}`, async () => {
    const scene = await start();
    for (const logprob of [-1, -2, -3]) {
      await scene.ask({ session: `s${logprob}`, prompt: asked(PROMPT, encode(PROMPT)), said: said(logprob) });
    }
    const text = PROMPT + visible(said(0)) + '<|im_end|>' + TOOL;
    const second = said(-9, encode('done'));
    const prompt = asked(text, [...encode(PROMPT), ...CALL, ...encode(TOOL)]);
    const { turn } = await scene.ask({ prompt, said: second });
    assert.equal(turn.isAmbiguous, true);
    assertLine(scene, turn, [said(-3), second], encode(TOOL));
    const back = await scene.retrieve(text + visible(second));
    assert.equal(back.ambiguous, true);
    // What differs in nothing is no choice.
    const other = await start();
    for (let i = 0; i < 3; i++) await other.ask({ prompt: asked(PROMPT, encode(PROMPT)), said: said(-1) });
    const { turn: equal } = await other.ask({ prompt, said: second });
    assert.equal(equal.isAmbiguous, undefined);
    assert.equal('ambiguous' in (await other.retrieve(text)), false);
  });

  test(`a session that sampled the same turn twice goes on from the newer one, and says so, prompts as ${kind}`, async () => {
    const scene = await start();
    for (const [session, logprob] of [
      ['a', -1],
      ['a', -2],
      ['b', -3],
    ] as const) {
      await scene.ask({ session, prompt: asked(PROMPT, encode(PROMPT)), said: said(logprob) });
    }
    const text = PROMPT + visible(said(0)) + '<|im_end|>' + TOOL;
    const prompt = asked(text, [...encode(PROMPT), ...CALL, ...encode(TOOL)]);
    const second = said(-9, encode('done'));
    const { turn } = await scene.ask({ session: 'a', prompt, said: second });
    assert.equal(turn.isAmbiguous, true);
    assertLine(scene, turn, [said(-2), second], encode(TOOL));
    const { turn: own } = await scene.ask({ session: 'b', prompt, said: second });
    assert.equal(own.isAmbiguous, undefined);
    assertLine(scene, own, [said(-3), second], encode(TOOL));
  });

  test(`what a session did not sample is none of its tokens, prompts as ${kind}`, async () => {
    const scene = await start();
    const long = said(-1, [...encode(' call'), ...encode(' of'), ...encode('ten')]);
    const short = said(-2, encode(' call'));
    for (const [session, one] of [
      ['short', short],
      ['long', long],
    ] as const) {
      await scene.ask({ session, prompt: asked(PROMPT, encode(PROMPT)), said: one });
    }
    // The client of the short one writes what the other one has sampled.
    const given = kind === 'text' ? encode(' often') : [...encode(' of'), ...encode('ten')];
    const prompt = asked(`${PROMPT} call often${TOOL}`, [...encode(PROMPT), ...short.ids, ...given, ...encode(TOOL)]);
    const second = said(-9, encode('done'));
    const { ids, turn } = await scene.ask({ session: 'short', prompt, said: second });
    assert.deepEqual(ids, [...encode(PROMPT), ...short.ids, ...given, ...encode(TOOL)]);
    assertLine(scene, turn, [short, second], [...given, ...encode(TOOL)]);
    // Nor is the end of a turn that it wrote itself.
    const stopped = said(-3, [...encode(' call'), endOfTurn]);
    await scene.ask({ session: 'stopped', prompt: asked(PROMPT, encode(PROMPT)), said: stopped });
    const written = asked(`${PROMPT} call<|im_end|>${TOOL}`, [
      ...encode(PROMPT),
      ...short.ids,
      endOfTurn,
      ...encode(TOOL),
    ]);
    const { turn: third } = await scene.ask({ session: 'short', prompt: written, said: second });
    assertLine(scene, third, [short, second], [endOfTurn, ...encode(TOOL)]);
    const { turn: fourth } = await scene.ask({ session: 'stopped', prompt: written, said: second });
    assertLine(scene, fourth, [stopped, second], encode(TOOL));
  });

  test(`of a turn that its client kept a part of, that part is the session's own, prompts as ${kind}`, async () => {
    const scene = await start();
    const ids = [...encode(' of'), ...encode('ten'), ...encode(' call'), ...encode(' the')];
    const whole = (logprob: number): Said => ({ ...said(logprob, ids), finish: 'abort' });
    for (const n of [1, 2, 3]) {
      await scene.ask({ session: `s${n}`, prompt: asked(PROMPT, encode(PROMPT)), said: whole(-n) });
    }
    const kept = ids.slice(0, 3);
    const prompt = asked(`${PROMPT}${decode(kept)}${TOOL}`, [...encode(PROMPT), ...kept, ...encode(TOOL)]);
    for (const n of [2, 1, 3]) {
      const second = said(-9 - n, encode('done'));
      const { ids: sent, turn } = await scene.ask({ session: `s${n}`, prompt, said: second });
      assert.deepEqual(sent, [...encode(PROMPT), ...kept, ...encode(TOOL)]);
      assertLine(scene, turn, [{ ...said(-n, kept), version: `${n}` }, second], encode(TOOL));
    }
  });

  test(`a session that continues another one, which goes on from there, prompts as ${kind}`, async () => {
    const scene = await start();
    const first = said(-1);
    await scene.ask({ session: 'main', prompt: asked(PROMPT, encode(PROMPT)), said: first });
    await scene.ask({ session: 'sibling', prompt: asked(PROMPT, encode(PROMPT)), said: said(-7) });
    let text = PROMPT + visible(first) + '<|im_end|>' + TOOL;
    let ids = [...encode(PROMPT), ...CALL, ...encode(TOOL)];
    // It has no turn of its own: of those that others have there the newest counts, which is the sibling's.
    const { turn: fork } = await scene.ask({ session: 'fork', prompt: asked(text, ids), said: said(-2) });
    assert.equal(fork.isAmbiguous, true);
    const { turn: own } = await scene.ask({ session: 'main', prompt: asked(text, ids), said: said(-3) });
    assert.equal(scene.turns.find(({ id }) => id === own.parent)!.session, 'main');
    text += `${visible(first)}<|im_end|>${TOOL}`;
    ids = [...ids, ...CALL, ...encode(TOOL)];
    const { turn: next } = await scene.ask({ session: 'fork', prompt: asked(text, ids), said: said(-4) });
    assert.equal(next.parent, fork.id);
    const { turn: back } = await scene.ask({ session: 'sibling', prompt: asked(text, ids), said: said(-5) });
    assert.equal(
      back.parent,
      fork.id,
      'the fork continued the turn of the sibling, and the sibling continues the fork',
    );
  });
}

test('samples with the same text and other ids: each session goes on from its own ids', async () => {
  const scene = await start();
  const joined = said(-1, [...encode(' often'), endOfTurn]);
  const apart = said(-2, [...encode(' of'), ...encode('ten'), endOfTurn]);
  for (const [session, one] of [
    ['joined', joined],
    ['apart', apart],
  ] as const) {
    await scene.ask({ session, prompt: PROMPT, said: one });
  }
  const text = `${PROMPT} often<|im_end|>${TOOL}`;
  const second = said(-9, encode('done'));
  for (const [session, one] of [
    ['joined', joined],
    ['apart', apart],
    ['joined', joined],
  ] as const) {
    assert.deepEqual((await scene.retrieve(`${PROMPT} often`, session)).tokens, [...encode(PROMPT), ...one.ids]);
    const { ids, turn } = await scene.ask({ session, prompt: text, said: second });
    assert.deepEqual(ids, [...encode(PROMPT), ...one.ids, ...encode(TOOL)]);
    assertLine(scene, turn, [one, second], encode(TOOL));
  }
  const back = await scene.retrieve(`${PROMPT} often`);
  assert.deepEqual(back.tokens, [...encode(PROMPT), ...apart.ids], 'of those that no session tells apart the newest');
  assert.equal(back.ambiguous, true);
});

test('a turn that ends within a letter is not continued there by a text with the whole letter', async () => {
  for (const session of ['s', '']) {
    const scene = await start();
    const letter = [...Buffer.from('é')];
    const cut: Said = { ids: letter.slice(0, 1), logprob: -1, version: '1', text: '', finish: 'abort' };
    const whole = { ...said(-2, [...letter, ...encode(' call'), endOfTurn]), version: '1' };
    await scene.ask({ session, prompt: PROMPT, said: cut });
    await scene.ask({ session, prompt: PROMPT, said: whole });
    const { ids } = await scene.ask({ session, prompt: `${PROMPT}é<|im_end|>${TOOL}`, said: said(-3) });
    assert.equal(decode(ids), `${PROMPT}é<|im_end|>${TOOL}`);
    if (session !== '') {
      assert.deepEqual(ids, [...encode(PROMPT), ...letter, endOfTurn, ...encode(TOOL)]);
      assert.equal(scene.turns.at(-1)!.parent, scene.turns[1]!.id);
    }
  }
});

test('a client that repeats a request whose stream was truncated, and keeps a part of the new response', async () => {
  const scene = await start();
  const ids = [...encode(' of'), ...encode('ten'), ...encode(' call'), ...encode(' the')];
  await scene.ask({ session: 's', prompt: PROMPT, said: { ...said(-1, ids.slice(0, 2)), finish: 'abort' } });
  const whole = said(-2, ids);
  await scene.ask({ session: 's', prompt: PROMPT, said: whole });
  const second = said(-9, encode('done'));
  const prompt = `${PROMPT}${decode(ids.slice(0, 3))}${TOOL}`;
  const { ids: sent, turn } = await scene.ask({ session: 's', prompt, said: second });
  assert.deepEqual(sent, [...encode(PROMPT), ...ids.slice(0, 3), ...encode(TOOL)]);
  assertLine(scene, turn, [{ ...said(-2, ids.slice(0, 3)), version: '2' }, second], encode(TOOL));
});

test('a part of a turn has no token without text at its end: the first bytes of a letter', async () => {
  const scene = await start();
  const letters = [...Buffer.from('é日')];
  const short = letters.slice(0, 4);
  await scene.ask({ session: 'a', prompt: PROMPT, said: { ...said(-1, short), text: 'é\ufffd', finish: 'length' } });
  await scene.ask({ session: 'b', prompt: PROMPT, said: said(-2, letters) });
  for (const session of ['a', 'b']) {
    const { ids, turn } = await scene.ask({ session, prompt: `${PROMPT}é${TOOL}`, said: said(-3) });
    assert.deepEqual(ids, [...encode(PROMPT), ...letters.slice(0, 2), ...encode(TOOL)]);
    assert.equal(turn.isAmbiguous, undefined);
    assert.equal(scene.turns.find(({ id }) => id === turn.parent)?.session, session);
  }
});

test('a text that ends within a token of a truncated turn is encoded from there on, and flagged', async () => {
  const scene = await start();
  // Two bytes that are no letters, and the first one of a letter: the first two come as one piece of text.
  const bytes = [0x80, 0x8d, 0xf0];
  await scene.ask({
    session: 's',
    prompt: PROMPT,
    said: { ...said(-1, bytes), text: '\ufffd\ufffd', finish: 'abort' },
  });
  const prompt = `${PROMPT}\ufffd<|im_end|>${TOOL}`;
  const { ids, turn } = await scene.ask({ session: 's', prompt, said: said(-2) });
  assert.equal(decode(ids), prompt);
  assert.deepEqual(turn.drift, { kind: 'text', at: encode(PROMPT).length });
});

test('a text that ends a truncated turn with U+FFFD is flagged: other turns may read so too', async () => {
  const scene = await start();
  await scene.ask({ session: 's', prompt: PROMPT, said: { ...said(-1, [0xf0]), text: '\ufffd', finish: 'abort' } });
  const { ids, turn } = await scene.ask({ session: 's', prompt: `${PROMPT}\ufffd<|im_end|>${TOOL}`, said: said(-2) });
  assert.deepEqual(ids, [...encode(PROMPT), 0xf0, endOfTurn, ...encode(TOOL)]);
  assert.deepEqual(turn.drift, { kind: 'text', at: encode(PROMPT).length + 1 });
});

test('without a session, all of one turn with what follows and a part of another may read the same', async () => {
  const scene = await start();
  await scene.ask({ prompt: PROMPT, said: said(-1, [...encode(' call'), 10]) });
  await scene.ask({ prompt: PROMPT, said: said(-2, [...encode(' call'), 10, 10, ...encode(' of')]) });
  const { turn } = await scene.ask({ prompt: `${PROMPT} call\n\n<|im_start|>`, said: said(-3) });
  assert.equal(turn.isAmbiguous, true);
});

test('a part of a turn that begins where another one of the session ends may as well be what the client wrote', async () => {
  const scene = await start();
  const first = [...encode(' call')];
  await scene.ask({ session: 's', prompt: PROMPT, said: { ...said(-1, first), finish: 'length' } });
  const second = said(-2, [10, ...encode(' of')]);
  await scene.ask({ session: 's', prompt: [...encode(PROMPT), ...first], said: second });
  const { turn } = await scene.ask({ session: 's', prompt: `${PROMPT} call\n<|im_start|>`, said: said(-3) });
  assert.equal(turn.isAmbiguous, true);
  const whole = await scene.ask({ session: 's', prompt: `${PROMPT} call\n of<|im_start|>`, said: said(-4) });
  assert.equal(whole.turn.isAmbiguous, undefined);
});

test('many sessions at one place stay cheap, and each goes on from its own turn', async () => {
  const scene = await start();
  const names = Array.from({ length: 1_000 }, (_, n) => `s${n}`);
  for (const [n, session] of names.entries()) await scene.ask({ session, prompt: encode(PROMPT), said: said(-1 - n) });
  for (const n of [999, 0, 500]) {
    const prompt = [...encode(PROMPT), ...CALL, ...encode(TOOL)];
    const second = said(-2_000, encode('done'));
    const { turn } = await scene.ask({ session: names[n]!, prompt, said: second });
    assertLine(scene, turn, [said(-1 - n), second], encode(TOOL));
  }
  // A prompt and the turn behind it, shared by all, and one more of each for those that went on.
  assert.ok(scene.captured.calls.captureStats().nodes < 10);
});

test('without a session, of two turns with the same text of which one was stopped, either may be meant', async () => {
  const scene = await start();
  const cut = said(-1, CALL.slice(0, -1));
  await scene.ask({ prompt: PROMPT, said: cut });
  await scene.ask({ prompt: PROMPT, said: said(-2) });
  const text = `${PROMPT + visible(cut)}<|im_end|>${TOOL}`;
  const { turn } = await scene.ask({ prompt: text, said: said(-9, encode('done')) });
  assert.equal(turn.isAmbiguous, true);
});

test('without a session a choice is ambiguous also where the prompt is known further than its turns', async () => {
  const scene = await start();
  const spelled = { ...said(-1), ids: [...Buffer.from(' often call'), endOfTurn] };
  await scene.ask({ prompt: PROMPT, said: spelled });
  await scene.ask({ prompt: PROMPT, said: said(-2) });
  const text = `${PROMPT + visible(spelled)}<|im_end|>${TOOL}`;
  for (const more of ['one', 'two']) {
    const { turn } = await scene.ask({ prompt: `${text} ${more}`, said: said(-9, encode('done')) });
    assert.equal(turn.isAmbiguous, true, more);
  }
});

test('text that comes while the heap is almost full is not taken, and the next one after it is', async () => {
  const guard = { look: () => {}, isHigh: true };
  const store = new MemoryStore(1e9);
  const scene = await CaptureScene.start({ tokenizerPath }, store, null, new HeapLimits(guard, 1e9));
  const asked = { prompt: 'Hello.', said: { ids: [264, endOfTurn], logprob: -1 } };
  await assert.rejects(scene.ask(asked), /short of memory/);
  await assert.rejects(scene.retrieve('Hello.'), /short of memory/);
  guard.isHigh = false;
  const { ids } = await scene.ask(asked);
  assert.deepEqual((await scene.retrieve('Hello.')).tokens, ids);
});
