import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { slug } from 'github-slugger';
import { type DefaultTheme, defineConfig } from 'vitepress';

/** The documentation as a site: `npm run docs:site`. It needs no network to build or to read. */

const docs = join(import.meta.dirname, '..');
const root = join(docs, '..');

/** The pages of the sidebar. */
const sections: Readonly<Record<string, readonly string[]>> = {
  Start: ['quickstart', 'concepts', 'guides/policies', 'guides/migrate', 'guides/launch', 'guides/python', 'glossary'],
  Recipes: ['recipes/README', ...pagesIn('recipes')],
  RL: [
    'guides/rollout',
    'guides/exact-tokens',
    'guides/chat-sessions',
    'guides/trajectories',
    'guides/feed',
    'guides/grpo',
    'reports/grpo/report',
    'guides/weight-swaps',
    'guides/snapshots',
    'guides/rollout-fields',
    'guides/tinker',
    'guides/fireworks',
  ],
  Operate: [
    'guides/troubleshooting',
    'guides/stuck-rollout',
    'guides/dashboard',
    'guides/observe',
    'guides/operations',
    'guides/faults',
    'guides/resume',
    'guides/overload',
    'guides/fleet-control',
    'guides/security',
    'guides/kubernetes',
    'guides/gateway',
    'guides/prefill-decode',
    'guides/kv-aware',
  ],
  Extend: [
    'guides/write-a-policy',
    'guides/write-a-plugin',
    'guides/embed',
    'life-of-a-request',
    'principles',
    ...pagesIn('internals'),
    'style',
  ],
  Reference: pagesIn('reference'),
  Decisions: pagesIn('decisions'),
};

function pagesIn(folder: string): string[] {
  return readdirSync(join(docs, folder))
    .filter((file) => file.endsWith('.md') && file !== 'README.md')
    .toSorted()
    .map((file) => `${folder}/${file.slice(0, -3)}`);
}

const titleOf = (page: string): string =>
  /^# (.*)$/m.exec(readFileSync(join(docs, `${page}.md`), 'utf8'))![1]!.replaceAll('`', '');

function sidebar(): DefaultTheme.SidebarItem[] {
  const listed = new Set(Object.values(sections).flat());
  const missing = pagesIn('guides').filter((page) => !listed.has(page));
  if (missing.length > 0)
    throw new Error(`docs/.vitepress/config.ts: no section of the sidebar has ${missing.join(', ')}`);
  return Object.entries(sections).map(([text, pages]) => ({
    text,
    collapsed: text !== 'Start' && text !== 'Recipes',
    items: pages.map((page) => ({ text: titleOf(page), link: `/${page.replace(/README$/, '')}` })),
  }));
}

/** Files outside of the pages that pages link to, by their path in the checkout. They are copied into the site as text. */
const linked = new Set<string>();

/** @param page the absolute path of the page that has the link @returns the link in the site */
function siteLink(href: string, page: string): string {
  if (/^(?:[a-z]+:|#|\/)/.test(href)) return href;
  const [path = '', anchor] = href.split('#');
  const target = join(dirname(page), path);
  if (target.startsWith(docs) && (path.endsWith('.md') || /\.(svg|png)$/.test(path))) return href;
  if (!existsSync(target)) throw new Error(`${relative(root, page)} links to ${href}, which does not exist`);
  if (statSync(target).isDirectory() && target.startsWith(docs)) return href;
  const inCheckout = relative(root, target).replace(/\/$/, '');
  linked.add(inCheckout);
  return `/source/${inCheckout}.txt${anchor === undefined ? '' : `#${anchor}`}`;
}

function copyLinked(outDir: string): void {
  for (const path of linked) {
    const to = join(outDir, 'source', `${path}.txt`);
    mkdirSync(dirname(to), { recursive: true });
    if (statSync(join(root, path)).isDirectory()) writeFileSync(to, `${readdirSync(join(root, path)).join('\n')}\n`);
    else cpSync(join(root, path), to);
  }
}

export default defineConfig({
  title: 'turnout',
  description: 'The router between RL training code and a fleet of LLM inference engines',
  srcDir: docs,
  outDir: join(docs, '.vitepress/dist'),
  rewrites: { 'recipes/README.md': 'recipes/index.md' },
  markdown: {
    // An address in a text, such as http://host:port, is an example and no link.
    linkify: false,
    // The anchors of GitHub, so that a link works in both.
    anchor: { slugify: (text) => slug(text) },
    config(md) {
      md.core.ruler.push('files-outside', ({ tokens, env }) => {
        const { path } = env as { path: string };
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          const href = token.type === 'link_open' ? token.attrGet('href') : null;
          if (href !== null) token.attrSet('href', siteLink(href, path));
        }
      });
    },
  },
  buildEnd: ({ outDir }) => copyLinked(outDir),
  themeConfig: {
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    footer: { message: 'Apache-2.0' },
  },
});
