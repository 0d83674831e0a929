import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type ChatScene, startChatScene } from '../harness/chat-scene.ts';

interface FeedRow {
  readonly session: string;
  readonly tokens: readonly number[];
  readonly reward: number | null;
}

interface FeedGroup {
  readonly id: number;
  readonly lease: string;
  readonly group: string;
  readonly because: string;
  readonly rows: readonly FeedRow[];
}

const scene = (t: TestContext, options: object): Promise<ChatScene> =>
  startChatScene(t, { router: { plugin: ['radix-tree', `feed:${JSON.stringify(options)}`] } });

const turn = ({ post }: ChatScene, session: string, group: string, headers: Record<string, string> = {}) =>
  post(
    '/generate',
    { text: `${group} of ten`, return_logprob: true, sampling_params: { max_new_tokens: 8 } },
    {
      'x-session-id': session,
      'x-turnout-group': group,
      ...headers,
    },
  );

async function take({ router }: ChatScene, query = ''): Promise<FeedGroup[]> {
  const answer = await fetch(`${router.url}/feed?${query}`);
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as FeedGroup);
}

test('a group is delivered when all its members have ended, with their tokens and rewards', async (t) => {
  const world = await scene(t, { groupSize: 2 });
  for (const session of ['a', 'b']) assert.equal((await turn(world, session, 'g')).status, 200);
  assert.deepEqual(await take(world, 'wait_secs=0'), []);
  await world.post('/sessions/a/finish', { reward: 1 });
  const waiting = take(world, 'wait_secs=20');
  await world.post('/sessions/b/finish', { reward: 0 });
  const [group, ...others] = await waiting;
  assert.deepEqual(others, []);
  assert.deepEqual(
    group!.rows.map(({ session, reward }) => ({ session, reward })),
    [
      { session: 'a', reward: 1 },
      { session: 'b', reward: 0 },
    ],
  );
  const acked = await world.post('/feed/ack', { leases: [group!.lease] });
  assert.deepEqual([acked.status, acked.text], [200, '{"acked":1,"lost":[]}']);
  assert.deepEqual(await take(world, 'wait_secs=0'), []);
  console.log(await (await fetch(`${world.router.url}/feed/stats`)).text());
});
