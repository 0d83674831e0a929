import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type ExchangeRow, ExchangeRows } from '../../src/observe/exchange-rows.ts';
import type { Exchange } from '../../src/exchange.ts';
import { Tap } from '../../src/observe/tap.ts';
import { turnout } from '../cli/turnout.ts';
import { send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { exchangeOf } from '../harness/policy.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const usage = '"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}';

/** An engine that responds to `/v1/completions`, and with 404 to everything else. */
async function startTapped(t: TestContext, options: RouterOptions = {}) {
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      if (asked.target.endsWith('/completions')) asked.answer(`{"choices":[],${usage}}`);
      else asked.connection.write(answer(404, '{}'));
    },
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url], policy: 'sticky_least_loaded', ...options });
  const turn = (session: string, id: string, path = '/v1/completions') =>
    send(t, router.url, post(path, { prompt: 'p' }, [`x-session-id: ${session}`, `x-request-id: ${id}`]));
  return { engine, router, turn };
}

test('turnout tap: an aligned line for each request as it ends, of those that are wanted', async (t) => {
  const { router, engine, turn } = await startTapped(t);
  const all = turnout(t, ['tap', router.url]);
  await all.says(/^TIME +STATUS/m);
  await turn('s1', 'r1');
  await turn('s1', 'r2', '/v1/other');
  const at = engine.url.slice('http://'.length);
  await all.says(
    new RegExp(`^[\\d:.]+ +200 +[\\d.]+m?s +[\\d.]+m?s +12\\(8\\)\\+3 +s1 +${at} +new +/v1/completions$`, 'm'),
  );
  await all.says(new RegExp(`^[\\d:.]+ +404 +[\\d.]+m?s +[\\d.]+m?s +- +s1 +${at} +home +/v1/other$`, 'm'));

  const failed = turnout(t, ['tap', router.url, '--status', '429,4xx', '--json']);
  const shown = failed.says(/^\{.*\}$/m);
  let isShown = false;
  void shown.then(() => (isShown = true));
  // Its connection is not open yet.
  while (!isShown) {
    await turn('s2', 'r3');
    await turn('s2', 'r4', '/v1/other');
  }
  const [line] = await shown;
  const { id, status, session, worker } = JSON.parse(line) as ExchangeRow;
  deepEqual({ id, status, session, worker }, { id: 'r4', status: 404, session: 's2', worker: engine.url });
});

test('GET /tap is for admins, refuses what it does not know, and ends with its reader', async (t) => {
  const { router } = await startTapped(t, { apiKey: ['data'], adminApiKey: ['admin'] });
  const get = (query: string, key: string) =>
    fetch(`${router.url}/tap${query}`, { headers: { authorization: `Bearer ${key}` } });
  equal((await get('', 'data')).status, 403);
  const refused = await get('?status=wrong', 'admin');
  equal(refused.status, 400);
  match(await refused.text(), /must be a status such as 429/);
  const ended = t.mock.method(Tap.prototype, 'cancel');
  const open = await get('?slow=1s', 'admin');
  equal(open.headers.get('content-type'), 'text/event-stream');
  const reader = open.body!.getReader();
  match(new TextDecoder().decode((await reader.read()).value), /^: listening/);
  await reader.cancel();
  await until('it has ended', () => ended.mock.callCount() === 1);
});

test('a reader that is slow loses rows, and gets their number; without a reader no row is made', async () => {
  let made = 0;
  const rows = new ExchangeRows({ sessionHeaders: [] }, () => `row ${made++}`);
  const stream = new ReadableStream(new Tap(rows, () => true), { highWaterMark: 0 });
  const reader = stream.getReader();
  const read = async () => new TextDecoder().decode((await reader.read()).value);
  match(await read(), /listening/);
  const end = (x: Exchange): void => {
    x.outcome = 'complete';
    rows.finished(x);
  };
  for (let i = 0; i < 612; i++) end(exchangeOf());
  const text = await read();
  equal(text.match(/^data: \{"id"/gm)?.length, 500);
  ok(text.endsWith('event: lost\ndata: {"lost":112}\n\n'), text.slice(-80));
  const next = read();
  end(exchangeOf());
  equal((await next).match(/^data: /gm)?.length, 1);
  await reader.cancel();
  equal(made, 613);
  end(exchangeOf());
  equal(made, 613);
});
