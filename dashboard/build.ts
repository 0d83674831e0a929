import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'vite';

/** Part of `npm run build`: builds the page into `router/dist/dashboard`. */

const root = import.meta.dirname;
const outDir = join(root, '../router/dist/dashboard');

/** @returns the modules that the page contains, as paths */
export async function buildDashboard(): Promise<string[]> {
  const modules = new Set<string>();
  await build({
    root,
    configFile: false,
    base: './',
    logLevel: 'warn',
    build: { outDir, emptyOutDir: true, target: 'es2024', modulePreload: false, assetsInlineLimit: 0 },
    plugins: [{ name: 'modules', moduleParsed: ({ id }) => void modules.add(id) }],
  });
  // The page is at /dashboard and its files below it: relative, so that both may be below another path.
  const page = join(outDir, 'index.html');
  writeFileSync(page, readFileSync(page, 'utf8').replaceAll('"./assets/', '"dashboard/assets/'));
  return [...modules];
}

if (import.meta.main) await buildDashboard();
