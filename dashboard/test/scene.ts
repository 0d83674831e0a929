import { deepEqual, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import axe from 'axe-core';
import { type Browser, type BrowserContextOptions, type Page, chromium } from 'playwright-core';
import { endWithRunner, killGroup, spawnGuarded } from '../../router/test/harness/guarded.ts';
import { until as untilSo } from '../../router/test/harness/within.ts';
import { type SimEngine, startSimEngine } from '../../simulator/src/engine.ts';
import type { SimOptions } from '../../simulator/src/sim-options.ts';

/** Where Debian's package puts it. */
export const CHROMIUM = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
const bin = join(import.meta.dirname, '../../router/bin/turnout.js');
const screenshots = join(import.meta.dirname, '../../out/dashboard');

endWithRunner();

const ends = new WeakMap<TestContext, (() => unknown)[]>();

/** What was started last ends first: the page before its router. All of it ends, also after an error. */
function atEnd(t: TestContext, end: () => unknown): void {
  const all = ends.get(t) ?? [];
  if (all.length === 0)
    t.after(async () => {
      const errors: unknown[] = [];
      for (const each of all.toReversed()) {
        try {
          await each();
        } catch (error) {
          errors.push(error);
        }
      }
      if (errors.length > 0) throw errors[0];
    });
  all.push(end);
  ends.set(t, all);
}

export interface RouterProcess {
  readonly url: string;
  kill(): Promise<void>;
}

/** A router as its users run it. */
export async function startRouterProcess(
  t: TestContext,
  port: string,
  ...options: readonly string[]
): Promise<RouterProcess> {
  const child = spawnGuarded(process.execPath, [bin, 'serve', '--port', port, '--prometheus-port', '0', ...options]);
  const ended = once(child, 'exit');
  const kill = async (): Promise<void> => {
    killGroup(child);
    await ended;
  };
  atEnd(t, kill);
  let said = '';
  const url = await new Promise<string>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (part: Buffer) => {
        said += part.toString();
        const found = /"msg":"listening on (http:\/\/[\d.:]+)"/.exec(said)?.[1];
        if (found !== undefined) resolve(found);
      });
    void ended.then(() => reject(new Error(`the router ended:\n${said}`)));
  });
  return { url, kill };
}

export const startRouter = async (t: TestContext, ...options: readonly string[]): Promise<string> =>
  (await startRouterProcess(t, '0', ...options)).url;

export async function startEngines(
  t: TestContext,
  count: number,
  options: Partial<SimOptions> = {},
): Promise<SimEngine[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const engine = await startSimEngine({
        kind: i % 2 === 0 ? 'sglang' : 'vllm',
        timeScale: 0.3,
        meanOutputTokens: 60,
        ...options,
      });
      atEnd(t, () => engine.close());
      return engine;
    }),
  );
}

/** Sessions that take turns until the test ends: groups of four with the same first prompt. */
export function startLoad(t: TestContext, url: string, sessions: number, key = ''): void {
  const ender = new AbortController();
  atEnd(t, () => ender.abort());
  const run = async (number: number): Promise<void> => {
    for (let round = 0; !ender.signal.aborted; round++) {
      const group = `prompt-${Math.floor(number / 4)}-${round}`;
      let prompt = `Task ${group}. ${'Think about it. '.repeat(20)}`;
      const turns = 2 + (number % 4);
      for (let turn = 0; turn < turns && !ender.signal.aborted; turn++) {
        prompt += ` And then ${turn}? ${'more words '.repeat(10)}`;
        const response = await fetch(`${url}/v1/completions`, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            'x-session-id': `rollout-${number}-${round}`,
            'x-turnout-group': group,
            ...(turn === turns - 1 ? { 'x-turnout-session-end': '1' } : {}),
            ...(key === '' ? {} : { authorization: `Bearer ${key}` }),
          },
          body: JSON.stringify({
            model: 'sim',
            prompt,
            max_tokens: 120,
            stream: true,
            stream_options: { include_usage: true },
          }),
          signal: ender.signal,
        });
        await response.text();
      }
    }
  };
  // Tests remove workers and end routers: what the load gets is not what they test.
  for (let i = 0; i < sessions; i++) void run(i).catch(() => {});
}

/** Waits for what the page shows: a browser on a busy machine takes its time. */
export const until = (claim: string, isSo: () => Promise<boolean>): Promise<void> => untilSo(claim, isSo, 30_000);

let browser: Promise<Browser> | null = null;

export async function closeBrowser(): Promise<void> {
  await (await browser)?.close();
}

interface PageOptions extends BrowserContextOptions {
  /** Console errors that the test causes: chromium logs each response with an error status, and each failed connection. */
  readonly expects?: RegExp;
}

export interface Opened {
  readonly page: Page;
  /** Saves what the page shows as `out/dashboard/NAME.png`. */
  shot(name: string): Promise<void>;
  /** Fails if axe finds a serious or critical issue. */
  checkAccess(): Promise<void>;
  /** Fails if the page is wider than the window. */
  hasNoSideways(claim: string): Promise<void>;
}

/** Opens the dashboard. At the end of the test it fails if there was a console error, or a request to anything but the router. */
export async function openPage(
  t: TestContext,
  url: string,
  path = '',
  { expects = /^$/, ...options }: PageOptions = {},
): Promise<Opened> {
  browser ??= chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  const context = await (
    await browser
  ).newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !expects.test(message.text())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  await page.route('**/*', (route) => {
    if (route.request().url().startsWith(`${url}/`)) return route.continue();
    problems.push(`a request to ${route.request().url()}`);
    return route.abort();
  });
  atEnd(t, async () => {
    await context.close();
    deepEqual(problems, []);
  });
  await page.goto(`${url}/dashboard${path}`);
  return {
    page,
    async shot(name) {
      if (!existsSync(screenshots)) mkdirSync(screenshots, { recursive: true });
      await page.screenshot({ path: join(screenshots, `${name}.png`) });
    },
    async hasNoSideways(claim) {
      const widths = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth] as const);
      ok(widths[0] <= widths[1], `${claim}: the page is ${widths[0]} px wide in ${widths[1]} px`);
    },
    async checkAccess() {
      // The policy of the page allows no script of others: axe is not one of the page.
      await page.evaluate(axe.source);
      const found = await page.evaluate(async () => {
        const { violations } = await (
          window as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } }
        ).axe.run();
        return violations.map(({ id, impact, nodes }) => ({
          id,
          impact,
          nodes: nodes.map(({ html }) => html.slice(0, 200)),
        }));
      });
      deepEqual(
        found.filter(({ impact }) => impact === 'serious' || impact === 'critical'),
        [],
      );
    },
  };
}

interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string }[];
}
