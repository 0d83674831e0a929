import assert from 'node:assert/strict';
import { call } from './call.ts';
import type { Line } from './line.ts';
import { until } from './until.ts';

export interface Retrieved {
  tokens: number[];
  loss_mask: number[];
  rollout_logp: number[];
}

export interface KeptTurn {
  index: number;
  tokens: number[];
  loss_mask: number[];
  rollout_log_probs: number[];
  finish_reason: string;
  routed_experts: { file: string; bytes: number } | null;
}

interface Exported {
  session: string;
  tokens: number[];
  loss_mask: number[];
  rollout_log_probs: number[];
}

const WITHIN_MS = 30_000;

/** What text gives back. */
export async function retrieve(router: string, text: string): Promise<Retrieved> {
  const answer = await call(router, '/retrieve_from_text', { body: { text, return_logp: true } });
  assert.equal(answer.status, 200, answer.body);
  return JSON.parse(answer.body) as Retrieved;
}

/** The same sampled once more: the last digits of logprobs move with what else is in an engine's batch. */
export const SAMPLED_TWICE = 1e-3;

export async function assertRetrieved(router: string, line: Line, tolerance = 0): Promise<void> {
  const { tokens, loss_mask: mask, rollout_logp: logprobs } = await retrieve(router, line.text);
  assert.deepEqual(tokens, line.ids, JSON.stringify(line.text));
  assert.deepEqual(mask, line.mask);
  assertClose(logprobs, line.logprobs, tolerance);
}

/** The turns of a session, as soon as so many are kept. */
export async function turnsOf(router: string, session: string, count: number): Promise<KeptTurn[]> {
  let page: KeptTurn[] = [];
  await until(`${count} turns of ${session} are kept`, WITHIN_MS, async () => {
    const answer = await call(router, `/trajectories/${session}`);
    if (answer.status === 200) ({ page } = JSON.parse(answer.body) as { page: KeptTurn[] });
    return page.length >= count;
  });
  assert.equal(page.length, count);
  return page;
}

/** An export has a line as one of its trajectories, position by position. */
export async function assertExported(router: string, session: string, line: Line, tolerance = 0): Promise<void> {
  const answer = await call(router, `/trajectories?format=jsonl&session=${session}`);
  const exported = answer.body
    .split('\n')
    .filter((json) => json !== '')
    .map((json) => JSON.parse(json) as Exported);
  const found = exported.find(({ tokens }) => tokens.join() === line.ids.join());
  assert.ok(found, `not among ${exported.length} trajectories of ${session}: ${JSON.stringify(line.text)}`);
  assert.deepEqual(found.loss_mask, line.mask);
  assertClose(found.rollout_log_probs, line.logprobs, tolerance);
}

export function assertClose(actual: readonly number[], expected: readonly number[], tolerance: number): void {
  if (tolerance === 0) return assert.deepEqual(actual, expected);
  assert.equal(actual.length, expected.length);
  for (const [i, value] of actual.entries()) {
    assert.ok(Math.abs(value - expected[i]!) < tolerance, `${i}: ${value}, not ${expected[i]}`);
  }
}
