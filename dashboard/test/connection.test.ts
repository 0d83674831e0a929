import { after, test } from 'node:test';
import { closeBrowser, openPage, startEngines, startRouterProcess, until } from './scene.ts';

after(closeBrowser);

test('the page says when the router is lost, and goes on when it is back', async (t) => {
  const [engine] = await startEngines(t, 1);
  const router = await startRouterProcess(t, '0', '--worker-urls', engine!.url);
  const { page, shot } = await openPage(t, router.url, '#/fleet', { expects: /ERR_/ });
  await page.getByText('● connected').waitFor();
  const port = new URL(router.url).port;
  await router.kill();
  await page.getByText('▲ connection lost, retrying').waitFor();
  await shot('lost');
  await startRouterProcess(t, port);
  await page.getByText('● connected').waitFor({ timeout: 30_000 });
  // The new router has no workers: what the page had is gone.
  await until('the rows are gone', async () => (await page.locator('tbody tr[id]').count()) === 0);
});
