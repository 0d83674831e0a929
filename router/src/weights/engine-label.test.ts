import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineLabel } from './engine-label.ts';

/** An engine that names its weights when the test lets it. */
function scene(name: string | null = '7') {
  const engine = { name, questions: 0, answer: null as (() => void) | null };
  const label = new EngineLabel(async () => {
    engine.questions++;
    const { promise, resolve } = Promise.withResolvers<void>();
    engine.answer = resolve;
    await promise;
    return engine.name;
  });
  const answered = async (): Promise<void> => {
    while (engine.answer === null) await new Promise((resolve) => setImmediate(resolve));
    engine.answer();
    engine.answer = null;
  };
  /** Asks, and the engine answers at once. */
  const ask = async () => {
    const asked = label.ask(true);
    await answered();
    return asked;
  };
  return { engine, label, ask, answered };
}

test('all that want to know before a question is asked share it, those that come later share the next one', async () => {
  const { engine, label, answered } = scene();
  const first = Array.from({ length: 100 }, () => label.ask());
  while (engine.questions === 0) await new Promise((resolve) => setImmediate(resolve));
  // It may have been answered with what held before these wanted to know.
  const second = Array.from({ length: 100 }, () => label.ask());
  await answered();
  assert.equal(new Set(await Promise.all(first)).size, 1);
  label.hurry();
  await answered();
  assert.equal(new Set(await Promise.all(second)).size, 1);
  assert.equal(engine.questions, 2);
});

test('a name proves something, unless it was never set or the engine did not say', async () => {
  const { engine, label, ask } = scene();
  assert.deepEqual(await ask(), { name: '7', isProof: true, updates: 0 });
  engine.name = 'default';
  assert.deepEqual(await ask(), { name: 'default', isProof: false, updates: 0 });
  engine.name = null;
  assert.deepEqual(await ask(), { name: null, isProof: false, updates: 0 });
  assert.equal(label.newest?.name, 'default');
});

test('a name that stays the same over an update proves nothing until it changes', async () => {
  const { engine, label, ask } = scene();
  await ask();
  label.updateBegan();
  assert.equal((await ask()).isProof, false, 'an update is under way');
  label.updateEnded(true);
  assert.deepEqual(await ask(), { name: '7', isProof: false, updates: 2 });
  assert.equal((await ask()).isProof, false);
  engine.name = '8';
  assert.deepEqual(await ask(), { name: '8', isProof: true, updates: 2 });
});

test('a name that changes with the update proves', async () => {
  const { engine, label, ask } = scene();
  await ask();
  label.updateBegan();
  engine.name = '8';
  label.updateEnded(true);
  assert.deepEqual(await ask(), { name: '8', isProof: true, updates: 2 });
});

test('where the name before an update is not known, nothing tells whether it changed', async () => {
  const { label, ask } = scene();
  label.updateBegan();
  label.updateEnded(true);
  assert.equal((await ask()).isProof, false);
});

test('an update that the engine refused changed nothing', async () => {
  const { label, ask } = scene();
  await ask();
  label.updateBegan();
  label.updateEnded(false);
  assert.equal((await ask()).isProof, true);
});

test('an update that begins or ends while the engine is asked makes the answer no proof', async () => {
  const { engine, label, ask, answered } = scene();
  await ask();
  const asked = label.ask(true);
  while (engine.questions < 2) await new Promise((resolve) => setImmediate(resolve));
  label.updateBegan();
  label.updateEnded(true);
  engine.name = '8';
  await answered();
  assert.equal((await asked).isProof, false);
  assert.equal((await ask()).isProof, true);
});

test('what it said to somebody else counts, but not after an update', async () => {
  const { label, ask } = scene();
  label.saw('7');
  assert.deepEqual(label.newest, { name: '7', isProof: true, updates: 0 });
  label.saw(null);
  assert.equal(label.newest?.name, '7');
  label.updateBegan();
  label.updateEnded(true);
  label.saw('8');
  assert.equal(label.newest?.name, '7', 'it may have been asked before');
  assert.equal((await ask()).isProof, false);
});
