import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '../../..');

/** The pages of the documentation, by path in the checkout. */
export const pages: readonly string[] = globSync(['*.md', '{docs,bench,dashboard,examples,python}/**/*.md'], {
  cwd: root,
  exclude: (path) => path.split('/').some((name) => name.startsWith('.') || name === 'node_modules'),
}).toSorted();

/** Pages whose blocks are run. */
export const guidePages = pages.filter((page) =>
  /^(?:README|docs\/quickstart|docs\/(?:guides|recipes)\/.*)\.md$/.test(page),
);

export const textOf = (page: string): string => readFileSync(join(root, page), 'utf8');

/** A fenced block of a page. */
export interface Block {
  readonly page: string;
  /** Of its first line of code. */
  readonly line: number;
  readonly language: string;
  /** Why it is not run: the word `not-run:REASON` after the language. */
  readonly notRun: string | null;
  readonly code: string;
}

export function blocksOf(page: string): Block[] {
  const lines = textOf(page).split('\n');
  const blocks: Block[] = [];
  for (let i = 0; i < lines.length; i++) {
    const [, indent, info] = /^( *)```(.*)$/.exec(lines[i]!) ?? [];
    if (indent === undefined || info === undefined) continue;
    const end = lines.indexOf(`${indent}\`\`\``, i + 1);
    if (end < 0) throw new Error(`${page}:${i + 1}: the block has no end`);
    const [language = '', ...words] = info.split(' ');
    const reason = words.find((word) => word.startsWith('not-run:'))?.slice('not-run:'.length) ?? null;
    const code = lines.slice(i + 1, end).map((line) => line.slice(indent.length));
    blocks.push({ page, line: i + 2, language, notRun: reason, code: `${code.join('\n')}\n` });
    i = end;
  }
  return blocks;
}
