import { match } from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { closeBrowser, openPage, startEngines, startLoad, startRouter, until } from './scene.ts';

/** The two walks of docs/guides/troubleshooting.md, with their clicks counted. The screenshots there are those of these tests. */

after(closeBrowser);

const bin = join(import.meta.dirname, '../../router/bin/turnout.js');

/** What a command prints. */
async function turnout(...args: readonly string[]): Promise<string> {
  return (await promisify(execFile)(process.execPath, [bin, ...args])).stdout;
}

const shortOf = (url: string): string => url.replace('http://', '');

test('one engine of eight is slow: one click, or one command', async (t) => {
  const engines = await startEngines(t, 8);
  engines[3]!.core.options.stepBaseMs *= 5;
  const slow = engines[3]!.url;
  const url = await startRouter(t, '--worker-urls', ...engines.map((engine) => engine.url));
  startLoad(t, url, 60);
  const { page, shot } = await openPage(t, url);

  const concern = page.getByRole('link', { name: `${shortOf(slow)} is slow` });
  await concern.waitFor({ timeout: 60_000 });
  await shot('walk-slow-overview');
  await concern.click();
  const details = page.getByRole('complementary', { name: `Worker ${slow}` });
  await details.waitFor();
  match((await details.textContent()) ?? '', /Token gap, last minute\s*[\d.]+ ms/);
  await shot('walk-slow-worker');

  const said = await turnout('top', url, '--once');
  match(said, new RegExp(`${slow} .* ← slow: [\\d.]+ times the median`));
  t.diagnostic(said.split('\n\n')[1]!);
});

test('a session moved: three clicks, or one command', async (t) => {
  const engines = await startEngines(t, 4, { timeScale: 1 });
  const url = await startRouter(t, '--worker-urls', ...engines.map((engine) => engine.url));
  startLoad(t, url, 24);
  const { page, shot } = await openPage(t, url);
  const bars = page.locator('.lane-bar');

  const { workers } = (await (await fetch(`${url}/workers`)).json()) as { workers: { id: string; url: string }[] };
  const drained = workers[1]!;
  await page.getByText('4 / 4').waitFor();
  await until('every worker has sessions', async () => {
    const { sessions } = (await (await fetch(`${url}/sessions`)).json()) as { sessions: { worker: string }[] };
    return new Set(sessions.map(({ worker }) => worker)).size === 4;
  });
  await fetch(`${url}/workers/${drained.id}/drain`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"state": "on"}',
  });

  await page.getByRole('link', { name: 'Sessions' }).click();
  await until('sessions have lanes', async () => (await bars.count()) > 10);
  await page.getByRole('button', { name: /^moved/ }).click();
  await page.locator('tbody tr[id]').first().click();
  const details = page.getByRole('complementary');
  const session = (await details.getByRole('heading').first().textContent())!.trim();
  await details.getByText(`Its session moved from ${drained.url} to`).waitFor();
  match((await details.textContent()) ?? '', /The reason: worker draining\./);
  await shot('walk-moved-session');

  const said = await turnout('explain', session, '--url', url);
  match(said, new RegExp(`Its session moved from ${drained.url} to \\S+\\. The reason: worker draining\\.`));
  t.diagnostic(said);
});
