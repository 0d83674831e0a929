import { equal, match, ok } from 'node:assert/strict';
import { after, test } from 'node:test';
import { closeBrowser, openPage, startEngines, startLoad, startRouter, until } from './scene.ts';

after(closeBrowser);

test('every view shows what a busy fleet does, in light and dark, wide and narrow', async (t) => {
  const engines = await startEngines(t, 8);
  // One engine of eight is slow.
  engines[3]!.core.options.stepBaseMs *= 5;
  const slow = engines[3]!.url.replace('http://', '');
  const urls = engines.map((engine) => engine.url);
  const url = await startRouter(
    t,
    '--worker-urls',
    ...urls,
    '--policy',
    'rollout',
    '--swap-snapshots',
    '/s/{identity}',
  );
  startLoad(t, url, 60);
  const { page, shot, checkAccess, hasNoSideways } = await openPage(t, url);

  await page.getByText('● connected').waitFor();
  const totals = page.getByLabel('Totals');
  await totals.getByText('8 / 8').waitFor();
  await until('requests finish', async () => Number((await totals.locator('.value').nth(1).textContent()) ?? 0) > 1);
  const concern = page.getByRole('link', { name: `${slow} is slow` });
  await concern.waitFor({ timeout: 60_000 });
  equal(await page.locator('.plot canvas').count(), 6);
  await until(
    'the plots have values',
    async () => (await page.locator('.plot .series b').first().textContent()) !== '–',
  );
  await shot('overview');
  await checkAccess();

  // From "one engine is slow" to the worker: one click.
  await concern.click();
  const details = page.getByRole('complementary', { name: `Worker http://${slow}` });
  await details.waitFor();
  match((await details.textContent()) ?? '', /Token gap, last minute\d/);
  equal(await page.locator('tbody tr[id]').count(), 8);
  ok((await page.getByRole('row', { name: slow }).textContent())?.includes('slow'), 'the row says so too');
  await shot('fleet');
  await checkAccess();

  await fetch(`${url}/swap`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ identity: 'step-1' }),
  });
  await page.getByRole('link', { name: 'Weight swaps' }).click();
  await page.getByRole('heading', { name: 'step-1' }).waitFor();
  await until('the swap ends', async () => (await page.getByText('● done').count()) > 8);
  equal(await page.locator('.bars .stage-load').count(), 8);
  await shot('swaps');
  await checkAccess();

  await page.getByRole('button', { name: 'Dark colours' }).click();
  await checkAccess();
  await shot('swaps-dark');
  for (const view of ['overview', 'fleet']) {
    await page.goto(`${url}/dashboard#/${view}`);
    await page.locator(`.view-${view}`).waitFor();
    await checkAccess();
    await shot(`${view}-dark`);
  }

  const phone = await openPage(t, url, '', { viewport: { width: 390, height: 844 }, colorScheme: 'dark' });
  for (const path of ['overview', 'fleet', `fleet/${encodeURIComponent(urls[0]!)}`, 'swaps']) {
    await phone.page.goto(`${url}/dashboard#/${path}`);
    await phone.page.locator(`.view-${path.split('/')[0]}`).waitFor();
    await phone.page.getByText('8 / 8').waitFor();
    await phone.hasNoSideways(path);
    await phone.checkAccess();
    await phone.shot(`phone-${path.includes('/') ? 'details' : path}`);
  }
  await hasNoSideways('1280 px');
});

test('a fleet without workers says what to do', async (t) => {
  const url = await startRouter(t);
  const { page } = await openPage(t, url, '#/fleet');
  await page.getByText('There are no workers. Add one').waitFor();
  equal(await page.getByRole('link', { name: 'Weight swaps' }).count(), 0, 'no weights are swapped here');
});

test('an address or a name that is no valid text does not stop the page', async (t) => {
  const engines = await startEngines(t, 1);
  const url = await startRouter(t, '--worker-urls', engines[0]!.url);
  const { page } = await openPage(t, url, '#/fleet/%');
  await page.getByLabel('Totals').getByText('1 / 1').waitFor();
  await fetch(`${url}/generate`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: String.raw`{"text": "Hello", "session_id": "half a pair \ud800", "sampling_params": {"max_new_tokens": 4}}`,
  });
  await page.getByRole('link', { name: 'Sessions' }).click();
  await page.locator('tbody tr[id]').getByText('half a pair').first().click();
  await page.getByRole('complementary', { name: /half a pair/ }).waitFor();
});
