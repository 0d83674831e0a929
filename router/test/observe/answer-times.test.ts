import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { startChatScene } from '../harness/chat-scene.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

test('a chat session: no time to the first token of an answer that was no stream; its path in the log is the one asked for', async (t) => {
  const { router, begin, say } = await startChatScene(t);
  const session = await begin();
  const metrics = async () => {
    const response = await fetch(`${router.url}/trajectories/${session}/metrics`);
    equal(response.status, 200);
    return (await response.json()) as Record<string, { max: number } | null>;
  };
  await say(session, [{ role: 'user', content: 'hi' }]);
  const { ttft_ms, output_tokens_per_second, latency_ms } = await metrics();
  deepEqual([ttft_ms, output_tokens_per_second], [null, null]);
  ok(latency_ms!.max > 0);
  await say(session, [{ role: 'user', content: 'hello' }], { stream: true });
  const streamed = (await metrics())['ttft_ms']!;
  ok(streamed.max > 0);
});

test('the log names the path that the client asked for in a chat session, and the session', async (t) => {
  const scene = await startChatScene(t);
  const { log, of } = recordedLog('info');
  const { config, fleet } = scene.router;
  const router = await startTestRouter(
    t,
    {
      workerUrls: fleet.workers.map(({ url }) => url),
      plugin: ['chat-sessions'],
      tokenizerPath: config.tokenizerPath,
      pluginTimeoutMs: 60_000,
      accessLog: true,
      disableHealthCheck: false,
    },
    { log },
  );
  await until('engines are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const opened = await fetch(`${router.url}/sessions`, { method: 'POST' });
  const { session_id } = (await opened.json()) as { session_id: string };
  const path = `/sessions/${session_id}/v1/chat/completions`;
  const body = JSON.stringify({ model: 'sim', messages: [{ role: 'user', content: 'hi' }] });
  equal((await fetch(router.url + path, { method: 'POST', body })).status, 200);
  await untilIdle(router);
  const [line] = of('exchange');
  deepEqual([line!['path'], line!['session']], [path, session_id]);
});
