import { deepEqual, equal } from 'node:assert/strict';
import { after, test } from 'node:test';
import { closeBrowser, openPage, startEngines, startRouter, until } from './scene.ts';

after(closeBrowser);

interface Workers {
  readonly workers: readonly {
    readonly id: string;
    readonly url: string;
    readonly not_serving_because: readonly string[];
  }[];
}

test('buttons do what they say, after a confirmation', async (t) => {
  const engines = await startEngines(t, 3);
  const url = await startRouter(
    t,
    '--worker-urls',
    ...engines.map((engine) => engine.url),
    '--health-check-interval-secs',
    '60',
  );
  const reasonsOf = async (worker: string): Promise<readonly string[] | undefined> => {
    const { workers } = (await (await fetch(`${url}/workers`)).json()) as Workers;
    return workers.find((each) => each.url === worker)?.not_serving_because;
  };
  const [one, two] = engines.map((engine) => engine.url) as [string, string];
  const { page, shot, checkAccess } = await openPage(t, url, `#/fleet/${encodeURIComponent(one)}`);
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const confirm = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  const badge = page.locator('.details .state');
  await until('all serve', async () => (await page.getByLabel('Totals').textContent())?.includes('3 / 3') ?? false);

  await button('Drain').click();
  await shot('confirm');
  await checkAccess();
  await confirm('Cancel');
  deepEqual(await reasonsOf(one), [], 'nothing happens without a confirmation');
  await button('Drain').click();
  await confirm('Drain');
  await badge.getByText('draining').waitFor();
  deepEqual(await reasonsOf(one), ['draining']);
  await page.getByRole('status').getByText('is draining').waitFor();
  await button('End drain').click();
  await confirm('End drain');
  await badge.getByText('serving').waitFor();
  deepEqual(await reasonsOf(one), []);

  await button('Quarantine').click();
  await confirm('Quarantine');
  await badge.getByText('unhealthy').waitFor();
  await badge.getByText('serving').waitFor();

  const { workers } = (await (await fetch(`${url}/workers`)).json()) as Workers;
  const { id } = workers.find((worker) => worker.url === one)!;
  await fetch(`${url}/workers/${id}/breaker`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"state":"open"}',
  });
  await badge.getByText('ejected').waitFor();
  const row = page.locator('tr.is-bad');
  await page.keyboard.press('Escape');
  await until('the row is red', async () => {
    const colour = await row.evaluate((element) => getComputedStyle(element).backgroundColor);
    return colour === 'rgb(253, 236, 234)';
  });
  await row.click();
  await button('Reset breaker').click();
  await confirm('Reset breaker');
  await badge.getByText('serving').waitFor();
  deepEqual(await reasonsOf(one), []);

  await button('Remove').click();
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  equal(await page.getByRole('dialog').count(), 0, 'Escape cancels');
  deepEqual(await reasonsOf(one), []);
  await button('Remove').click();
  await confirm('Remove');
  await until('the row is gone', async () => (await page.locator('tbody tr[id]').count()) === 2);
  equal(await reasonsOf(one), undefined);
  deepEqual(await reasonsOf(two), []);
  equal(await page.locator('.details').count(), 0);
});

test('what the router refuses is said', async (t) => {
  const [engine] = await startEngines(t, 1);
  const url = await startRouter(t, '--worker-urls', engine!.url, '--disable-health-check');
  const { page } = await openPage(t, url, `#/fleet/${encodeURIComponent(engine!.url)}`, { expects: /409/ });
  await page.getByRole('button', { name: 'Quarantine' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Quarantine' }).click();
  await page.getByRole('status').getByText('drain it instead').waitFor();
});
