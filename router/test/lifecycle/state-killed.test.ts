import { deepEqual, ok } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { StateMap } from '../../src/choose/state.ts';
import { fileStore } from '../../src/choose/state-files.ts';
import { seededRandom } from '../../src/kit/rng.ts';
import { until } from '../harness/within.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const fail = (error: Error): void => {
  throw error;
};
const contentsOf = (map: StateMap): Record<string, string> => Object.fromEntries(map.entries());

/** What the writer's map holds after its change number n, started from nothing, and after the half change that follows. */
function after(n: number, keys: number): Record<string, string> {
  const state: Record<string, string> = {};
  for (let i = Math.max(1, n - 7 * keys); i <= n; i++) change(state, i, keys);
  if (n > 0) state['last'] = `${n}`;
  return state;
}

function change(state: Record<string, string>, n: number, keys: number): void {
  if (n % 7 === 0) delete state[`k${n % keys}`];
  else state[`k${n % keys}`] = `${n}`;
}

test('a file that ends at any byte holds what was set up to there, and is whole after the next start', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 's.jsonl');
  const changes = [
    ['a', '1'],
    ['b', 'zwei \u00fc \ud83d\ude80'],
    ['a'],
    ['c', '"\\\n'],
    ['b', '2'],
    ['d', ''],
  ] as const;
  const states: Record<string, string>[] = [{}];
  const state: Record<string, string> = {};
  for (const [name, value] of changes) {
    if (value === undefined) delete state[name];
    else state[name] = value;
    states.push({ ...state });
  }
  const whole = Buffer.from(changes.map((each) => `${JSON.stringify(each)}\n`).join(''));
  for (let end = 0; end <= whole.length; end++) {
    writeFileSync(path, whole.subarray(0, end));
    // A change counts from its last bracket on, with or without the end of its line.
    const lines = whole.subarray(0, end).toString().split('\n');
    const isLastWhole = lines.at(-1)!.endsWith(']');
    const expected = states[lines.length - 1 + Number(isLastWhole)]!;
    const store = fileStore(folder, fail);
    const map = store.open('s');
    deepEqual(contentsOf(map), expected, `${end} bytes`);
    map.set('next', 'x');
    await store.flush();
    deepEqual(contentsOf(fileStore(folder, fail).open('s')), { ...expected, next: 'x' }, `${end} bytes, then more`);
  }
});

test('a writer killed at any moment leaves a state that it went through, no older than what it had flushed', async (t) => {
  const random = seededRandom(7);
  const program = join(import.meta.dirname, 'state-writer.ts');
  for (let run = 0; run < 6; run++) {
    const folder = temporaryFolder(t);
    // Few keys: the file is written anew all the time, as it has many more lines than are alive.
    const keys = run % 2 === 0 ? 3 : 400;
    let flushed = 0;
    // A few lives each: every next one starts on what the last one left.
    for (let life = 0; life < 2; life++) {
      const child = spawn(process.execPath, [program, folder, String(keys)], { stdio: ['ignore', 'pipe', 'inherit'] });
      let text = '';
      child.stdout.on('data', (bytes) => (text += String(bytes)));
      const exited = once(child, 'close');
      const lines = 20 + Math.floor(random() * 400);
      await until('it has written', () => text.split('\n').length > lines);
      child.kill('SIGKILL');
      await exited;
      flushed = Number(text.trimEnd().split('\n').at(-1));
      const leftover = readdirSync(folder).filter((name) => name !== 'state.jsonl' && name !== 'state.jsonl.new');
      deepEqual(leftover, []);
      const store = fileStore(folder, fail);
      const state = contentsOf(store.open('state'));
      const last = Number(state['last']);
      ok(last >= flushed, `flushed ${flushed}, found ${last}`);
      // Each change is two lines: its own, and the number of it, which may be missing after the other.
      const next = { ...after(last, keys) };
      change(next, last + 1, keys);
      const isBetween = JSON.stringify(sorted(state)) === JSON.stringify(sorted(next));
      deepEqual(sorted(state), sorted(isBetween ? next : after(last, keys)));
      // The start has repaired it: every line can be read.
      for (const line of readFileSync(join(folder, 'state.jsonl'), 'utf8').trimEnd().split('\n')) JSON.parse(line);
    }
  }
});

const sorted = (state: Record<string, string>): [string, string][] =>
  Object.entries(state).toSorted(([a], [b]) => (a < b ? -1 : 1));
