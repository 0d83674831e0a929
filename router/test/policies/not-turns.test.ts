import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';

test('rollout: what a session asks that is no turn goes to its worker, and teaches nothing', async (t) => {
  const { router, who } = await startFleetScene(t, 3, { policy: 'rollout' });
  const named = (session: string): string[] => [`x-session-id: ${session}`];
  const learned = async (): Promise<object> => {
    const { text } = await send(t, router.url, request('GET', '/policies'));
    const { state } = (JSON.parse(text) as { policies: { state: Record<string, unknown> }[] }).policies[0]!;
    const { expectedAnswerTokens, expectedTurnTokens, expectedTurns, hasTurns, openSessions } = state;
    return { expectedAnswerTokens, expectedTurnTokens, expectedTurns, hasTurns, openSessions };
  };
  const asides = (session: string): string[] => [
    post('/tokenize', { prompt: 'x'.repeat(4_000) }, named(session)),
    post('/v1/messages/count_tokens', { messages: [{ role: 'user', content: 'x'.repeat(4_000) }] }, named(session)),
    request('GET', '/health_generate', '', named(session)),
    request('GET', '/of/the/engine', '', named(session)),
  ];
  const home = await who(post('/generate', { text: 'x' }, named('s')));
  const before = await learned();
  for (const bytes of asides('s')) equal(await who(bytes), home);
  for (const bytes of asides('new')) await who(bytes);
  await untilIdle(router);
  deepEqual(await learned(), before);
});
