import { deepEqual, equal, match } from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, after, test } from 'node:test';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { closeBrowser, openPage, startEngines, startRouter, startRouterProcess, until } from './scene.ts';

after(closeBrowser);

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-tokens-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A folder with the tokenizer of the simulated engines. */
function tokenizerFor(t: TestContext): string {
  const folder = folderFor(t);
  writeTokenizer(folder);
  return folder;
}

const authorization = (key: string): Record<string, string> => (key === '' ? {} : { authorization: `Bearer ${key}` });

/** Chats are captured once the router knows what the engine is. */
const untilKnown = (url: string, key = ''): Promise<void> =>
  until('the engine is known', async () => {
    const { workers } = (await (await fetch(`${url}/workers`, { headers: authorization(key) })).json()) as {
      workers: { engine: string | null }[];
    };
    return workers.every(({ engine }) => engine !== null);
  });

async function chat(url: string, session: string, content: string, { maxTokens = 60, key = '' } = {}): Promise<void> {
  const messages = [{ role: 'user', content }];
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-session-id': session, ...authorization(key) },
    body: JSON.stringify({ model: 'sim', messages, max_tokens: maxTokens, logprobs: true }),
  });
  equal(response.status, 200, await response.text());
}

test('tokens are shown as text, and parts of characters as bytes; without a tokenizer as ids, with the reason', async (t) => {
  const [engine] = await startEngines(t, 1);
  const dataDir = folderFor(t);
  const capture = ['--tokenizer-path', tokenizerFor(t), '--capture-chat', '--data-dir', dataDir];
  const router = await startRouterProcess(t, '0', '--worker-urls', engine!.url, ...capture);
  await untilKnown(router.url);
  await chat(
    router.url,
    'proof',
    'Prove it:\n\n  ∑ x = ü\tand\u200b the \u202eend. In simple words, and with an example.',
  );

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const width of [1280, 390]) {
      const { page, shot, checkAccess, hasNoSideways } = await openPage(t, router.url, '#/tokens/proof', {
        colorScheme,
        viewport: { width, height: 800 },
      });
      const tokens = page.locator('.token[data-i]');
      await tokens.first().waitFor();
      match(
        await page.locator('.tokens').innerText(),
        / it:↵\n↵\n {2}E28891 x = C3BC⇥and.* the .*end\. In simple words/s,
      );
      await page.locator('.token', { hasText: 'C3' }).hover();
      await page.getByText(/^Token \d+: bytes C3, id 195, prompt$/).waitFor();
      await page.locator('.tokens [class*="logprob-"]').nth(3).hover();
      await page.getByText(/^Token \d+: ".+", id \d+, sampled, logprob -?[\d.]+, snapshot /).waitFor();
      match((await tokens.last().getAttribute('title'))!, /^id \d+$/);
      equal(await page.getByText('--tokenizer-path').count(), 0);
      await shot(`tokens-text-${colorScheme}-${width}`);
      await checkAccess();
      await hasNoSideways('tokens');
      await page.getByRole('button', { name: 'mask' }).click();
      await shot(`tokens-text-mask-${colorScheme}-${width}`);
      await checkAccess();
      await page.context().close();
    }
  }

  await router.kill();
  const url = await startRouter(t, '--worker-urls', engine!.url, '--store', 'sqlite', '--data-dir', dataDir);
  const { page, shot } = await openPage(t, url, '#/tokens/proof');
  await page.getByText('Tokens are shown as ids, because this router has no tokenizer.').waitFor();
  const texts = await page.locator('.token[data-i]').allTextContents();
  deepEqual([texts.includes('195'), texts.filter((text) => !/^\d+$/.test(text))], [true, []]);
  await shot('tokens-ids');
});

test('the newest trajectories come first, and earlier ones with a button', async (t) => {
  const [engine] = await startEngines(t, 1);
  const url = await startRouter(t, '--worker-urls', engine!.url, '--tokenizer-path', tokenizerFor(t), '--capture-chat');
  await untilKnown(url);
  for (let i = 0; i < 205; i++) await chat(url, `session-${i}`, 'Prove it.', { maxTokens: 1 });
  const { page } = await openPage(t, url, '#/tokens');
  const list = page.getByRole('navigation', { name: 'Trajectories' });
  await page.getByRole('region', { name: 'Tokens of session-204', exact: true }).waitFor();
  equal(await list.getByRole('link').count(), 200);
  await list.getByRole('button', { name: 'Earlier trajectories' }).click();
  await list.getByRole('link', { name: 'session-0 ' }).waitFor();
  equal(await list.getByRole('link').count(), 205);
  equal(await list.getByRole('button').count(), 0);
});

test('sessions of two clients with one name are two trajectories', async (t) => {
  const [engine] = await startEngines(t, 1);
  const keys = ['--api-key', 'ONE', '--api-key', 'TWO', '--admin-api-key', 'ADMIN'];
  const capture = ['--tokenizer-path', tokenizerFor(t), '--capture-chat'];
  const url = await startRouter(t, '--worker-urls', engine!.url, ...keys, ...capture);
  await untilKnown(url, 'ADMIN');
  await chat(url, 'same', 'Alpha.', { maxTokens: 1, key: 'ONE' });
  await chat(url, 'same', 'Omega.', { maxTokens: 1, key: 'TWO' });
  const { page } = await openPage(t, url, '#/tokens', { expects: /401/ });
  await page.getByLabel('Admin key').fill('ADMIN');
  await page.keyboard.press('Enter');
  const list = page.getByRole('navigation', { name: 'Trajectories' });
  const tokens = page.locator('.tokens');
  for (const [at, text] of ['Omega', 'Alpha'].entries()) {
    await list.getByRole('link').nth(at).click();
    await tokens.getByText(text).waitFor();
    deepEqual([await tokens.count(), await list.locator('[aria-current]').count()], [1, 1]);
  }
});

test('sessions of any name have their details and their tokens', async (t) => {
  const [engine] = await startEngines(t, 1);
  const url = await startRouter(t, '--worker-urls', engine!.url, '--tokenizer-path', tokenizerFor(t), '--capture-chat');
  const names = ['a//b', '../x', 'a b', 'ü', '%2F', '..'];
  await untilKnown(url);
  for (const name of names) await chat(url, name, 'Prove it.');
  const { page } = await openPage(t, url, '#/sessions');
  for (const name of names) {
    await page.getByRole('link', { name: 'Sessions' }).click();
    await page.locator('tbody tr[id]', { has: page.getByTitle(name, { exact: true }) }).click();
    const details = page.getByRole('complementary', { name: `Session ${name}`, exact: true });
    await details.getByText('It is the first request of its session').waitFor();
    await details.getByRole('link', { name: 'Tokens of the trajectory' }).click();
    const tokens = page.getByRole('region', { name: `Tokens of ${name}`, exact: true });
    await tokens.locator('.token[data-i]').first().waitFor();
    await tokens.getByRole('link', { name: 'Which worker served each turn' }).click();
    await until('the session is shown again', async () => (await details.count()) === 1);
  }
});
