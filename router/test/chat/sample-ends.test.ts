import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type ChatMessage, type ChatScene, startChatScene } from '../harness/chat-scene.ts';
import { type Sample, readSamples } from '../harness/safetensors.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const user = (content: string): ChatMessage => ({ role: 'user', content });

interface Asked {
  readonly scene: ChatScene;
  readonly session: string;
  readonly samples: () => Promise<Sample[]>;
}

async function start(t: TestContext, samples: string, sim: object = { meanOutputTokens: 0 }): Promise<Asked> {
  const plugin = [`chat-sessions:${JSON.stringify({ samples })}`];
  const scene = await startChatScene(t, { router: { plugin }, sim });
  const session = await scene.begin();
  const read = async (): Promise<Sample[]> => {
    const response = await fetch(`${scene.router.url}/sessions/${session}/samples`, { method: 'POST' });
    return readSamples(Buffer.from(await response.arrayBuffer()));
  };
  return { scene, session, samples: read };
}

/** Three attempts at a second turn, the last of which goes on; and a chat beside it. */
async function attempts({ scene, session }: Asked): Promise<void> {
  const more = { max_tokens: 4, temperature: 1 };
  const first = await scene.say(session, [user('a')], more);
  const question = [user('a'), first, user('b')];
  await scene.say(session, question, more);
  await scene.say(session, [user('a'), first, user('another')], more);
  const last = await scene.say(session, question, more);
  await scene.say(session, [...question, last, user('c')], more);
  await scene.say(session, [user('beside')], more);
}

/** Prompt and answer of the calls with these places, one behind the other. */
const tokensOf = ({ log }: ChatScene, place: number): number[] => [...log[place]!.inputIds, ...log[place]!.outputIds];

test('newest: one sample, the one of the newest turn', async (t) => {
  const asked = await start(t, 'newest');
  assert.deepEqual(await asked.samples(), []);
  await attempts(asked);
  const samples = await asked.samples();
  assert.deepEqual(
    samples.map(({ tokens }) => tokens),
    [tokensOf(asked.scene, 5)],
  );
});

test('last_attempts: choices of a stream that end at different times are no attempts', async (t) => {
  const { scene, session, samples } = await start(t, 'last_attempts', { timeScale: 1, meanOutputTokens: 20 });
  const first = await scene.say(session, [user('a')], { max_tokens: 4 });
  const body = { model: 'sim', messages: [user('a'), first, user('b')], stream: true, n: 3, temperature: 1 };
  assert.equal((await scene.post(`/sessions/${session}/v1/chat/completions`, body)).status, 200);
  assert.equal((await samples()).length, 3);
});

test('last_attempts: what was asked for again is no sample', async (t) => {
  const asked = await start(t, 'last_attempts');
  await attempts(asked);
  const samples = await asked.samples();
  assert.deepEqual(
    samples.map(({ tokens }) => tokens),
    [tokensOf(asked.scene, 4), tokensOf(asked.scene, 5)],
  );
});

test('last_attempts: choices of one answer are all samples, and what they share is trained in the first one', async (t) => {
  const asked = await start(t, 'last_attempts');
  const { scene, session } = asked;
  const first = await scene.say(session, [user('a')], { max_tokens: 4 });
  await scene.say(session, [user('a'), first, user('b')], { max_tokens: 4, temperature: 1, n: 2 });
  const [one, other] = await asked.samples();
  const trained = (sample: Sample | undefined): number => sample!.mask.reduce((sum, each) => sum + each, 0);
  assert.deepEqual([trained(one), trained(other)], [8, 4]);
  assert.equal(one!.mask.length, other!.mask.length);
  assert.deepEqual(other!.mask.slice(0, 4), [0, 0, 0, 0]);
});

test('last_attempts: an answer that broke off gives way to a whole one; alone it is a sample', async (t) => {
  const asked = await start(t, 'last_attempts');
  const { scene, session } = asked;
  const question = [user('a')];
  const breakOff = async (messages: readonly ChatMessage[]): Promise<void> => {
    const { length } = scene.log;
    const left = new AbortController();
    const body = JSON.stringify({ model: 'sim', messages, stream: true });
    const url = `${scene.router.url}/sessions/${session}/v1/chat/completions`;
    const response = await fetch(url, { method: 'POST', body, signal: left.signal });
    const reader = response.body!.getReader();
    let text = '';
    while (text.split('"content"').length < 5) {
      const { value } = await reader.read();
      assert.ok(value !== undefined, text);
      text += Buffer.from(value).toString();
    }
    left.abort();
    await until('the engine has stopped', () => scene.log.length > length);
    await untilIdle(scene.router);
  };
  await breakOff(question);
  const first = await scene.say(session, question, { max_tokens: 4 });
  await breakOff([user('a'), first, user('b')]);
  await scene.say(session, [user('a'), first, user('b')], { max_tokens: 4 });
  await breakOff([user('a'), first, user('b')]);
  const turns = (await scene.record(session)).metadata.tree.turns;
  assert.equal(turns.length, 5);
  const samples = await asked.samples();
  assert.deepEqual(
    samples.map(({ tokens, meta }) => [tokens, meta.status]),
    [[tokensOf(scene, 3), 'truncated']],
  );
  await breakOff([user('c')]);
  assert.deepEqual(
    (await asked.samples()).map(({ meta }) => meta.status),
    ['truncated', 'aborted'],
  );
});
