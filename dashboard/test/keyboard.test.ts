import { equal } from 'node:assert/strict';
import { after, test } from 'node:test';
import { closeBrowser, openPage, startEngines, startLoad, startRouter, until } from './scene.ts';

after(closeBrowser);

test('everything can be done with keys', async (t) => {
  const engines = await startEngines(t, 4);
  const url = await startRouter(t, '--worker-urls', ...engines.map((engine) => engine.url));
  const { page, shot } = await openPage(t, url);
  const press = (key: string) => page.keyboard.press(key);
  await page.getByText('● connected').waitFor();
  await press('2');
  await page.waitForURL(/#\/fleet$/);
  const rows = page.locator('tbody tr[id]');
  await until('the rows are there', async () => (await rows.count()) === 4);

  const active = page.locator('tr.is-active');
  await press('ArrowDown');
  equal(await active.getAttribute('aria-rowindex'), '2');
  await press('ArrowDown');
  equal(await active.getAttribute('aria-rowindex'), '3');
  equal(await page.getByRole('grid').getAttribute('aria-activedescendant'), await active.getAttribute('id'));
  const name = (await active.locator('td').first().textContent())!.trim();
  await press('Enter');
  await page.getByRole('complementary', { name: `Worker http://${name}` }).waitFor();
  await press('Escape');
  await until('the details close', async () => (await page.locator('.details').count()) === 0);
  await press('End');
  equal(await active.getAttribute('aria-rowindex'), '5');
  await press('Home');
  equal(await active.getAttribute('aria-rowindex'), '2');

  await press('/');
  await page.keyboard.type(name);
  await until('one row is left', async () => (await rows.count()) === 1);
  await press('ArrowDown');
  await press('Enter');
  await page.getByRole('complementary', { name: `Worker http://${name}` }).waitFor();
  await press('Escape');
  await press('/');
  await press('Escape');
  await until('the filter is cleared', async () => (await rows.count()) === 4);

  // After a click on the head or on a row the selected row is seen, and Enter opens it.
  const isMarked = () =>
    active
      .locator('td')
      .first()
      .evaluate((cell) => getComputedStyle(cell).boxShadow !== 'none');
  for (const clicked of [page.getByRole('button', { name: 'Worker' }), rows.first()]) {
    await clicked.click();
    await press('Escape');
    await press('ArrowDown');
    equal(await isMarked(), true);
    await press('Enter');
    await page.locator('.details').waitFor();
    await press('Escape');
  }

  await press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await shot('keys');
  await press('2');
  equal(await page.getByRole('dialog').count(), 1, 'keys of the page do nothing while a dialog is open');
  await press('Escape');
  equal(await page.getByRole('dialog').count(), 0);
  const theme = () => page.evaluate(() => document.documentElement.dataset['theme']);
  equal(await theme(), 'light');
  await press('t');
  equal(await theme(), 'dark');
  await press('1');
  await page.locator('.view-overview').waitFor();
});

test('Escape and the button close details, and the focus returns to the list', async (t) => {
  const engines = await startEngines(t, 2);
  const url = await startRouter(t, '--worker-urls', ...engines.map((engine) => engine.url));
  startLoad(t, url, 4);
  for (const width of [1280, 390]) {
    const { page } = await openPage(t, url, '', { viewport: { width, height: 800 } });
    const rows = page.locator('tbody tr[id]');
    const details = page.locator('.details');
    const isClosed = async (how: string): Promise<void> => {
      await until(`${how}: the details are closed`, async () => (await details.count()) === 0);
      await until(`${how}: the list has the focus`, () => page.evaluate(() => document.activeElement?.role === 'grid'));
    };
    for (const view of ['fleet', 'sessions', 'requests']) {
      await page.goto(`${url}/dashboard#/${view}`);
      await page.locator(`.view-${view}`).waitFor();
      await until('there are rows', async () => (await rows.count()) > 1);
      if (view === 'requests') await page.getByRole('button', { name: 'Pause' }).click();

      await page.getByRole('grid').focus();
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await details.waitFor();
      await page.keyboard.press('Escape');
      await isClosed(`${view}, ${width} px, Enter and Escape`);

      await page.keyboard.press('Enter');
      const close = details.getByRole('button', { name: 'Close the details' });
      await close.focus();
      await page.keyboard.press('Escape');
      await isClosed(`${view}, ${width} px, Escape in the details`);

      await rows.first().click();
      await close.click();
      await isClosed(`${view}, ${width} px, click and button`);
      if (view === 'requests') await page.getByRole('button', { name: 'Follow' }).click();
    }
    await page.goto(`${url}/dashboard#/fleet/${encodeURIComponent(engines[0]!.url)}`);
    await details.waitFor();
    await page.keyboard.press('Escape');
    await isClosed('an address');
  }
});

test('the colours are those of the system until the switch is used', async (t) => {
  const url = await startRouter(t);
  const { page } = await openPage(t, url, '', { colorScheme: 'dark' });
  const theme = () => page.evaluate(() => document.documentElement.dataset['theme']);
  equal(await theme(), 'dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await until('the page follows the system', async () => (await theme()) === 'light');
  await page.getByRole('button', { name: 'Dark colours' }).click();
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.emulateMedia({ colorScheme: 'light' });
  equal(await theme(), 'dark');
});
