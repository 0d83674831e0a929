import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '../../..');

/** The pages of the documentation, by path in the checkout. */
export const pages: readonly string[] = [
  ...readdirSync(root).filter((file) => file.endsWith('.md')),
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md') && !file.startsWith('.'))
    .map((file) => `docs/${file}`)
    .toSorted(),
];

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
