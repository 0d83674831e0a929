import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { whyNoEngines } from './installed.ts';

const example = join(import.meta.dirname, '../../../examples/run.ts');

interface Step {
  readonly own: readonly number[];
  readonly cuts: number;
  readonly lag: number;
}

test(
  'three steps of examples/grpo: the tokens that a trainer gets, and their labels, are true',
  {
    skip: await whyNoEngines(),
  },
  async () => {
    const out = mkdtempSync(join(tmpdir(), 'turnout-grpo-'));
    const options = ['grpo', '--steps', '3', '--groups', '6', '--no-baseline', '--out', out];
    const run = spawn(process.execPath, [example, ...options], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    run.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
    const [status] = (await once(run, 'exit')) as [number | null];
    assert.equal(status, 0, text);
    const lines = readFileSync(join(out, 'seed-1/turnout/steps.jsonl'), 'utf8').trimEnd().split('\n');
    const steps = lines.map((line) => JSON.parse(line) as Step);
    assert.equal(steps.length, 3);
    for (const { own, lag } of steps) {
      assert.ok(own.length > 400, `${own.length} sampled tokens`);
      assert.ok(lag <= 1);
    }
    // What the report has checked; without these lines it checked nothing.
    for (const held of [
      'under the label',
      'differs from what the agent received: 0',
      'failed requests: 0, repeated by the agent: 0',
    ])
      assert.ok(text.includes(held), text);
    rmSync(out, { recursive: true });
  },
);
