import { deepEqual, equal, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import type { Router } from '../../src/router.ts';
import { request } from '../harness/client.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { exchangeOf } from '../harness/policy.ts';
import { scene } from '../harness/rollout-scene.ts';
import { untilIdle } from '../harness/router.ts';

const named = (session: string): string[] => [`x-session-id: ${session}`];

async function learnedBy({ url }: Router): Promise<object> {
  const { policies } = (await (await fetch(`${url}/policies`)).json()) as {
    policies: { state: Record<string, unknown> }[];
  };
  const { expectedAnswerTokens, expectedTurnTokens, expectedTurns, hasTurns, openSessions } = policies[0]!.state;
  return { expectedAnswerTokens, expectedTurnTokens, expectedTurns, hasTurns, openSessions };
}

/** A rendered image. */
const LONG = 'x'.repeat(200_000);

test('rollout: what a session asks that is no turn goes to its worker, and teaches nothing', async (t) => {
  const { router, who } = await startFleetScene(t, 3, { policy: 'rollout' });
  const asides = (session: string): string[] => [
    post('/tokenize', { prompt: 'x'.repeat(4_000) }, named(session)),
    post('/v1/messages/count_tokens', { messages: [{ role: 'user', content: 'x'.repeat(4_000) }] }, named(session)),
    request('GET', '/health_generate', '', named(session)),
    request('GET', '/of/the/engine', '', named(session)),
    ...['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v1/responses', '/cohere/v2/chat'].map((path) =>
      post(`${path}/render`, { messages: [{ role: 'user', content: LONG }] }, named(session)),
    ),
    ...['/v1/chat/completions', '/v1/completions'].map((path) =>
      post(`${path}/derender`, { generate_response: { text: LONG } }, named(session)),
    ),
  ];
  const home = await who(post('/generate', { text: 'x' }, named('s')));
  const before = await learnedBy(router);
  for (const bytes of asides('s')) equal(await who(bytes), home);
  for (const bytes of asides('new')) await who(bytes);
  await untilIdle(router);
  deepEqual(await learnedBy(router), before);
});

const READING = ['/v1/embeddings', '/v1/score', '/rerank', '/classify', '/pooling', '/v1/audio/transcriptions'];

test('rollout: what only reads a prompt leaves the session where it is, and teaches nothing', async (t) => {
  const { router, who } = await startFleetScene(t, 3, { policy: 'rollout' });
  const home = await who(post('/generate', { text: 'x' }, named('s')));
  const before = await learnedBy(router);
  for (const session of ['s', 'new'])
    for (const path of READING) await who(post(path, { input: LONG }, named(session)));
  await untilIdle(router);
  deepEqual(await learnedBy(router), before);
  equal(await who(post('/generate', { text: 'x' }, named('s'))), home);
});

test('rollout: it is placed by load, of which it is a part', () => {
  const { ask } = scene(2);
  const embedding = (bytes: number) => {
    const x = exchangeOf({ session: 's', body: 'x'.repeat(bytes) });
    x.cacheUse = 'prompt';
    return ask(x)!.url;
  };
  const busy = embedding(60_000);
  for (let i = 0; i < 3; i++) notEqual(embedding(100), busy);
});
