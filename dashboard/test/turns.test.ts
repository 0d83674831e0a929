import { equal, match, ok } from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { until } from '../../router/test/harness/within.ts';
import { closeBrowser, openPage, startEngines, startLoad, startRouter } from './scene.ts';

after(closeBrowser);

/** What a slow machine may take until the page shows what has happened. */
const PATIENCE_MS = 60_000;

test('sessions, groups, requests and tokens of a busy fleet; a session that moved, and why', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-dashboard-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  writeTokenizer(folder);
  const engines = await startEngines(t, 5, { timeScale: 1 });
  const urls = engines.map((engine) => engine.url);
  const url = await startRouter(
    t,
    '--worker-urls',
    ...urls,
    '--tokenizer-path',
    folder,
    '--capture-chat',
    '--worker-max-inflight',
    '6',
  );
  startLoad(t, url, 32);
  const { page, shot, checkAccess } = await openPage(t, url, '#/sessions');
  const rows = page.locator('tbody tr[id]');
  await until('sessions have lanes', async () => (await page.locator('.lane-bar').count()) > 60, PATIENCE_MS);
  ok((await rows.count()) > 10);
  await until('some wait', async () => (await page.locator('.lane .is-wait.is-running').count()) > 0, PATIENCE_MS);

  // A worker leaves: its sessions move.
  const { workers } = (await (await fetch(`${url}/workers`)).json()) as { workers: { id: string; url: string }[] };
  const gone = workers[1]!;
  await fetch(`${url}/workers/${gone.id}`, { method: 'DELETE' });
  const moved = page.getByRole('button', { name: /^moved/ });
  await moved.waitFor({ timeout: PATIENCE_MS });
  await until('several have moved', async () => (await page.locator('.lane .move').count()) > 2, PATIENCE_MS);
  await shot('sessions');
  await checkAccess();
  await page.getByRole('searchbox').fill('moved: worker removed');
  await rows.first().click();
  const details = page.getByRole('complementary');
  await details.getByText('worker removed').first().waitFor({ timeout: PATIENCE_MS });
  // The turns come from another endpoint than the row.
  await details.getByRole('table', { name: 'Candidates' }).first().waitFor();
  match((await details.textContent()) ?? '', new RegExp(`moved from ${gone.url} to http`));
  await shot('session-moved');
  await checkAccess();

  await page.getByRole('link', { name: 'Groups' }).click();
  await until('groups have lines', async () => (await page.locator('.group-lines i').count()) > 8, PATIENCE_MS);
  await until(
    'a group has a tail',
    async () => (await page.locator('.group-lines .is-ended').count()) > 4,
    PATIENCE_MS,
  );
  await shot('groups');
  await checkAccess();

  await page.getByRole('link', { name: 'Requests' }).click();
  await until('requests are listed', async () => (await rows.count()) > 10, PATIENCE_MS);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Follow' }).waitFor();
  await rows.first().click();
  await page.getByRole('heading', { name: 'Why this worker?' }).waitFor();
  await page.getByRole('complementary').getByText('The response was complete').waitFor({ timeout: PATIENCE_MS });
  await shot('requests');
  await checkAccess();

  const chat = async (content: string, id: string): Promise<void> => {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-session-id': id, 'x-turnout-group': 'math' },
      body: JSON.stringify({ model: 'sim', messages: [{ role: 'user', content }], max_tokens: 80, logprobs: true }),
    });
    equal(response.status, 200, await response.text());
  };
  await chat(`Prove it. ${'In simple words. '.repeat(10)}`, 'proof-1');
  await page.goto(`${url}/dashboard#/tokens`);
  await page.reload();
  await page.getByRole('heading', { name: 'proof-1' }).waitFor({ timeout: PATIENCE_MS });
  equal(await page.locator('.token-turn').count(), 1);
  const sampled = page.locator('.tokens [class*="logprob-"]');
  ok((await sampled.count()) > 20);
  await sampled.last().hover();
  await page.getByText(/sampled, logprob -?[\d.]+, snapshot /).waitFor();
  await shot('tokens');
  await checkAccess();
  await page.getByRole('button', { name: 'mask' }).click();
  equal((await page.locator('.tokens .mask-1').count()) > 20, true);
  await page.getByRole('button', { name: 'snapshot' }).click();
  await page.locator('.tokens .snapshot-0').first().waitFor();

  const dark = await openPage(t, url, '#/sessions', { colorScheme: 'dark' });
  await until('lanes', async () => (await dark.page.locator('.lane-bar').count()) > 20, PATIENCE_MS);
  await dark.shot('sessions-dark');
  await dark.checkAccess();
  for (const view of ['groups', 'requests', 'tokens']) {
    await dark.page.goto(`${url}/dashboard#/${view}`);
    await dark.page.locator(`.view-${view} :is(tbody tr[id], .token)`).first().waitFor({ timeout: PATIENCE_MS });
    await dark.shot(`${view}-dark`);
    await dark.checkAccess();
  }

  const phone = await openPage(t, url, '#/sessions', { viewport: { width: 390, height: 844 } });
  await until('lanes', async () => (await phone.page.locator('.lane-bar').count()) > 10, PATIENCE_MS);
  for (const view of ['sessions', 'groups', 'requests', 'tokens']) {
    await phone.page.goto(`${url}/dashboard#/${view}`);
    await phone.page.locator(`.view-${view} :is(tbody tr[id], .token)`).first().waitFor({ timeout: PATIENCE_MS });
    await phone.shot(`phone-${view}`);
    await phone.checkAccess();
  }
});

test('under a policy that reads no keys the state of sessions is unknown, and the page says why', async (t) => {
  const [engine] = await startEngines(t, 1);
  const url = await startRouter(t, '--worker-urls', engine!.url, '--policy', 'round_robin');
  startLoad(t, url, 4);
  for (const view of ['sessions', 'groups']) {
    const { page } = await openPage(t, url, `#/${view}`);
    await page.getByText("The router's policy reads no session keys").waitFor();
    const rows = page.locator('tbody tr[id]');
    await rows.first().waitFor();
    equal(await rows.filter({ hasText: 'ended' }).count(), 0);
  }
});
