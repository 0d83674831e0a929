import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import GithubSlugger from 'github-slugger';
import { errorTable } from '../../src/kit/errors.ts';
import { feedMetrics } from '../../src/recorder/tap/feed/metrics.ts';
import { metrics } from '../../src/observe/metrics.ts';
import { chatMetrics, treeCounters, treeFailures, treeGauges } from '../../src/recorder/tap/metrics.ts';
import { pages, root, textOf } from './pages.ts';

const withoutBlocks = (text: string): string => text.replaceAll(/^( *)```.*?^\1```$/gms, '');

/** As GitHub makes them, and the site (`docs/.vitepress/config.ts`). */
function anchorsOf(page: string): Set<string> {
  const slugger = new GithubSlugger();
  const headings = [...withoutBlocks(textOf(page)).matchAll(/^#{1,6} (.*)$/gm)];
  return new Set(headings.map(([, text = '']) => slugger.slug(text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1'))));
}

const anchors = new Map<string, Set<string>>();

/** What is wrong with a link, or null. */
function problemOf(page: string, link: string): string | null {
  if (/^(?:[a-z]+:|\/)/.test(link)) return null;
  const [path = '', anchor] = link.split('#');
  const target = path === '' ? page : join(dirname(page), path);
  if (!existsSync(join(root, target))) return `${page}: ${link}: no such file`;
  if (anchor === undefined || !target.endsWith('.md') || statSync(join(root, target)).isDirectory()) return null;
  if (!anchors.has(target)) anchors.set(target, anchorsOf(target));
  return anchors.get(target)!.has(anchor) ? null : `${page}: ${link}: no such heading`;
}

test('every link of the documentation leads to a file and a heading that exist', () => {
  let count = 0;
  const problems = pages.flatMap((page) =>
    [...withoutBlocks(textOf(page)).matchAll(/\]\(([^()\s]+)\)/g)].flatMap(([, link = '']) => {
      count++;
      return problemOf(page, link) ?? [];
    }),
  );
  assert.deepEqual(problems, []);
  assert.ok(count > 300, `${count} links`);
});

test('every metric that a guide names exists', () => {
  const names = new Set(
    [
      ...[...metrics, ...feedMetrics].map(({ name }) => name),
      ...[
        ...Object.values(treeGauges),
        ...Object.values(treeCounters),
        ...Object.values(treeFailures),
        ...Object.values(chatMetrics),
      ].map(([name]) => name),
    ].flatMap((name) => [name, `${name}_bucket`, `${name}_sum`, `${name}_count`]),
  );
  const unknown = pages
    .filter((page) => !/CHANGELOG|decisions/.test(page))
    .flatMap((page) =>
      [...textOf(page).matchAll(/\bturnout_[a-z0-9_]+[a-z0-9](?!…|_…|\*)\b/g)].map(([name]) => `${page}: ${name}`),
    )
    .filter((entry) => !names.has(entry.split(': ')[1]!) && !entry.endsWith('turnout_compat'));
  assert.deepEqual(unknown, []);
});

test('troubleshooting has every error code', () => {
  const text = textOf('docs/guides/troubleshooting.md');
  assert.deepEqual(
    Object.keys(errorTable).filter((code) => !text.includes(`\`${code}\``)),
    [],
  );
});

/** The parts of a quoted message that are long enough to be looked for, without its numbers, names and quotes. */
const fixedParts = (message: string): string[] => message.split(/[\d"'…]+/).filter(({ length }) => length >= 17);

test('messages that troubleshooting quotes are those of the router', () => {
  const [, start = ''] = /## The router does not start\n(.*?)\n## Requests get errors/s.exec(
    textOf('docs/guides/troubleshooting.md'),
  )!;
  const quoted = [...start.matchAll(/^\| ([^|]*) \|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([^`]+)`/g)].flatMap(([, message = '']) => fixedParts(message)),
  );
  assert.ok(quoted.length > 5, quoted.join('\n'));
  const folder = join(root, 'router/src');
  const source = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => /(?<!\.test)\.ts$/.test(file))
    .map((file) => readFileSync(join(folder, file), 'utf8'))
    .concat(readFileSync(join(root, 'router/bin/turnout.js'), 'utf8'))
    .join('\n');
  assert.deepEqual(
    quoted.filter((part) => !source.includes(part)),
    [],
  );
});
