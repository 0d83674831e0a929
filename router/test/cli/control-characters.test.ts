import { equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { turnout } from './turnout.ts';

test('text of clients does not control the terminal of turnout explain', async (t) => {
  const engines = await Promise.all(['one', 'two'].map((model) => startSimEngine({ timeScale: 0, model })));
  for (const engine of engines) t.after(() => engine.close());
  const router = await startTestRouter(t, { disableHealthCheck: false, workerUrls: engines.map(({ url }) => url) });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const response = await fetch(`${router.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-session-id': 's' },
    body: JSON.stringify({ model: '\u001b[2J\nIt was killed.\u009b2J', prompt: 'p' }),
  });
  equal(response.status, 404, await response.text());
  const text = turnout(t, ['explain', 's', '--url', router.url]);
  equal(await text.ended, 0, text.output());
  match(text.output(), /model_not_found: The model `\?\[2J\?It was killed\.\?2J` does not exist/);
  const json = turnout(t, ['explain', 's', '--url', router.url, '--json']);
  equal(await json.ended, 0, json.output());
  equal((JSON.parse(json.output()) as { exchanges: { model: string }[] }).exchanges[0]!.model.length, 22);
  for (const { output } of [text, json]) equal(/(?!\n)\p{Cc}/u.test(output()), false);
});
