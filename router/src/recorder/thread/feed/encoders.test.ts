import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toArrow } from './arrow.ts';
import type { Group } from './group.ts';
import { toNdjson } from './ndjson.ts';
import type { Row, SentGroup } from './rows.ts';

const row = (session: string, numbers: Int32Array): Row => ({
  session,
  trajectory: `${session}-1`,
  model: 'tiny',
  ids: Int32Array.from([5, 6, 7]),
  mask: Uint8Array.from([0, 1, 1]),
  logprobs: Float64Array.from([0, -0.5, NaN]),
  versions: Int32Array.from([-1, 0, 0]),
  lag: 0,
  reward: 1,
  rewards: { format: 0.5 },
  turnRewards: [null],
  tokenRewards: null,
  turns: [{ id: 't', from: 0, to: 3, finishReason: 'stop', worker: 'w' }],
  flags: ['drift'],
  labels: [],
  experts: { shape: [2, numbers.length / 2, 1], numbers },
  topTokens: [null, [[-0.5, 6, 'ä"']], null],
});

/** @param onEncoded called when all but the last bytes of the group were returned */
async function* sent(rows: readonly Row[], onEncoded: () => void): AsyncGenerator<SentGroup> {
  const group: Group = {
    id: 1,
    tenant: '',
    name: 'g',
    size: rows.length,
    beganMs: 1,
    members: [],
    state: 'leased',
    because: 'all',
    position: 2,
    readyMs: 3,
    deliveries: 1,
    lease: null,
  };
  yield { group, lease: '1-1', version: 'v', versionNames: ['v'], rows, encoded: onEncoded };
}

test('a line of the feed comes in pieces: the whole may be longer than a string of V8', async () => {
  const numbers = Int32Array.from({ length: 1_000_000 }, (_, i) => i % 200);
  const pieces: Uint8Array[] = [];
  let before = -1;
  const groups = sent([row('a', numbers), row('b', numbers)], () => void (before = pieces.length));
  for await (const piece of toNdjson(groups)) pieces.push(piece);
  assert.ok(pieces.every(({ length }) => length < 200_000));
  assert.equal(before, pieces.length - 1);
  const text = Buffer.concat(pieces).toString();
  assert.equal(text.indexOf('\n'), text.length - 1);
  const base64 = Buffer.from(Uint8Array.from(numbers)).toString('base64');
  const common = {
    model: 'tiny',
    tokens: [5, 6, 7],
    loss_mask: [0, 1, 1],
    rollout_log_probs: [0, -0.5, null],
    versions: [-1, 0, 0],
    lag: 0,
    reward: 1,
    rewards: { format: 0.5 },
    turn_rewards: [null],
    token_rewards: null,
    turns: [{ id: 't', from: 0, to: 3, finish_reason: 'stop', worker: 'w' }],
    finish_reason: 'stop',
    flags: ['drift'],
    labels: [],
    rollout_top_logprobs: [null, [[-0.5, 6, 'ä"']], null],
    routed_experts: { shape: [2, 500_000, 1], dtype: 'uint8', base64 },
  };
  assert.deepEqual(JSON.parse(text), {
    id: 1,
    lease: '1-1',
    cursor: 2,
    group: 'g',
    tenant: '',
    because: 'all',
    size: 2,
    deliveries: 1,
    ready_at_ms: 3,
    version: 'v',
    version_names: ['v'],
    rows: ['a', 'b'].map((session) => ({ session, trajectory: `${session}-1`, ...common })),
  });
});

test('Arrow refuses more bytes in a column than its offsets can say', async () => {
  // Memory that is not written takes no space.
  const numbers = new Int32Array(300_000_000);
  // Their type is that of the largest and the least number.
  numbers.reduce = () => -1 as never;
  const rows = [row('a', numbers), row('b', numbers)];
  const encode = async (): Promise<void> => {
    for await (const _ of toArrow(sent(rows, () => {})));
  };
  await assert.rejects(encode(), /routed_experts of a group has more than 2 GiB/);
});
