import { equal, ok } from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { closeBrowser, openPage, startRouter, until } from './scene.ts';

after(closeBrowser);

const WORKERS = 500;
const SESSIONS = 10_000;
/** Of the whole page: the rows in sight, the header, a few plots. */
const MAX_NODES = 2_500;

test('500 workers and 10,000 sessions: the page stays small and handles clicks while the feed runs', async (t) => {
  const body =
    '{"choices":[{"text":"x"}],"usage":{"prompt_tokens":50,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":25}}}';
  const engine = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(200, { 'content-type': 'application/json' }).end(body));
  }).listen(0);
  await once(engine, 'listening');
  t.after(() => {
    engine.close();
    engine.closeAllConnections();
  });
  const { port } = engine.address() as AddressInfo;
  const ranks = `http://127.0.0.1:${port}@0-${WORKERS - 1}`;
  const url = await startRouter(t, '--worker-urls', ranks, '--policy', 'sticky_least_loaded', '--disable-health-check');
  let isOver = false;
  t.after(() => (isOver = true));
  const ask = (session: number) =>
    fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'x-session-id': `session-${session}`, 'content-type': 'application/json' },
      body: '{"prompt":"Hi"}',
    }).then((response) => response.text());
  let next = 0;
  const fill = async (): Promise<void> => {
    while (next < SESSIONS) await ask(next++);
  };
  await Promise.all(Array.from({ length: 32 }, fill));
  // Sessions go on while the page is used.
  const load = async (): Promise<void> => {
    while (!isOver) await ask(Math.floor(Math.random() * SESSIONS));
  };
  for (let i = 0; i < 4; i++) void load().catch(() => {});

  const { page, shot } = await openPage(t, url, '#/fleet');
  await page.getByLabel('Totals').getByText(`${WORKERS} / ${WORKERS}`).waitFor();
  await page.getByText('10,000 sessions').waitFor();
  const nodes = () => page.evaluate(() => document.querySelectorAll('*').length);
  ok((await nodes()) < MAX_NODES, `${await nodes()} nodes`);
  await shot('large-fleet');

  const filter = page.getByRole('searchbox');
  await filter.fill(`${port}@499`);
  await until('one row is left', async () => (await page.locator('tbody tr[id]').count()) === 1);
  await page.locator('tbody tr[id]').click();
  await page.getByRole('complementary', { name: `Worker http://127.0.0.1:${port}@499` }).waitFor();
  await filter.fill('');
  await page.getByRole('button', { name: 'Worker', exact: true }).click();
  await page.getByRole('grid').focus();
  await page.keyboard.press('End');
  await page
    .locator('tr.is-active')
    .getByText(`@${WORKERS - 1}`)
    .waitFor();
  equal(await page.locator('tr.is-active').getAttribute('aria-rowindex'), String(WORKERS + 1));
  ok((await nodes()) < MAX_NODES, `${await nodes()} nodes after scrolling`);

  // The feed went on all the time.
  const value = () => page.getByLabel('Totals').locator('.value').nth(1).textContent();
  const before = await value();
  await until('the totals change', async () => (await value()) !== before);
  await page.getByRole('link', { name: 'Sessions' }).click();
  await until('sessions have rows', async () => (await page.locator('tbody tr[id]').count()) > 10);
  ok((await nodes()) < MAX_NODES, `${await nodes()} nodes with sessions`);
  await shot('large-sessions');
  await page.getByRole('searchbox').fill('session-77');
  await page.locator('tbody tr[id]').first().click();
  await page.getByRole('complementary').waitFor();
  await page.keyboard.press('Escape');
  for (const view of ['1', '2', '3', '2']) await page.keyboard.press(view);
  await page.locator('.view-fleet').waitFor();
  ok((await nodes()) < MAX_NODES, `${await nodes()} nodes at the end`);
});
