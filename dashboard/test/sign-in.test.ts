import { deepEqual, equal } from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { closeBrowser, openPage, startEngines, startRouter } from './scene.ts';

after(closeBrowser);

test('with keys the page asks for an admin key, and keeps it in memory only', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-keys-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'data'), 'data-key\n');
  writeFileSync(join(folder, 'admin'), 'admin-key\n');
  const [engine] = await startEngines(t, 1);
  const keys = ['--api-key-file', join(folder, 'data'), '--admin-api-key-file', join(folder, 'admin')];
  const url = await startRouter(t, '--worker-urls', engine!.url, ...keys);
  const { page, shot, checkAccess } = await openPage(t, url, '#/fleet', { expects: /401|403/ });
  const signIn = async (key: string): Promise<void> => {
    await page.getByLabel('Admin key').fill(key);
    await page.getByRole('button', { name: 'Sign in' }).click();
  };
  await page.getByRole('heading', { name: 'Sign in to turnout' }).waitFor();
  await checkAccess();
  await shot('sign-in');
  await signIn('wrong');
  await page.getByText('Not authorized: A valid API key is required').waitFor();
  await signIn('data-key');
  await page.getByText('Not authorized: This endpoint controls the router').waitFor();
  await signIn('admin-key');
  await page.getByText('● connected').waitFor();
  await page.getByText(engine!.url.replace('http://', '')).waitFor();

  // Buttons send the key, too.
  await page.locator('tbody tr[id]').click();
  await page.getByRole('button', { name: 'Drain' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
  await page.locator('.details .state').getByText('draining').waitFor();

  const kept = await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length, location.href]);
  deepEqual(kept.slice(0, 3), ['', 0, 0]);
  equal(String(kept[3]).includes('admin-key'), false);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in to turnout' }).waitFor();
  await signIn('admin-key');
  await page.getByText('● connected').waitFor();
  await page.reload();
  await page.getByRole('heading', { name: 'Sign in to turnout' }).waitFor();
});

test('without keys nothing is asked', async (t) => {
  const url = await startRouter(t);
  const { page } = await openPage(t, url);
  await page.getByText('● connected').waitFor();
  equal(await page.getByLabel('Admin key').count(), 0);
});
