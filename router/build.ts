import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Plugin, build } from 'esbuild';
import { buildDashboard } from '../dashboard/build.ts';
import { type BundledPackage, sbomOf } from './sbom.ts';

/**
 * `npm run build`: the published package in `dist/`. Our modules and the packages that they import become a few files, because a start
 * that resolves and reads 600 files takes twice the CPU time (bench/report.md, "start"). Types are emitted by tsc, file by file.
 */

const root = import.meta.dirname;
const workspace = join(root, '..');
const dist = join(root, 'dist');

/** What a user starts or imports, and what the router starts as a thread or process (`threads/worker-thread.ts`). */
const entries = [
  'index',
  'cli/main',
  'forward/bodies-in-thread',
  'tinker/samples-in-thread',
  'tinker/unpack-in-thread',
  'rollout-fields/answers-in-thread',
  'recorder/thread/recorder-in-thread',
  'recorder/thread/tokens/encode-in-thread',
];

interface Manifest extends BundledPackage {
  readonly peerDependencies: Readonly<Record<string, string>>;
}
const { peerDependencies, ...product } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;

/** What the sources import of `node:http`; esbuild reports a name that is missing here. */
const HTTP_EXPORTS = ['Agent', 'METHODS', 'STATUS_CODES', 'createServer', 'request'];

rmSync(dist, { recursive: true, force: true });
execFileSync(
  process.execPath,
  [join(workspace, 'node_modules/typescript/bin/tsc'), '-p', join(root, 'tsconfig.build.json')],
  {
    stdio: 'inherit',
  },
);
const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: [
    ...entries.map((entry) => ({ in: `src/${entry}.ts`, out: entry })),
    { in: '../simulator/src/process.ts', out: 'simulator/process' },
  ],
  outdir: 'dist',
  chunkNames: 'shared/[name]-[hash]',
  bundle: true,
  splitting: true,
  platform: 'node',
  format: 'esm',
  target: 'node22',
  // Function names stay, for stack traces; blanks only cost memory.
  minifyWhitespace: true,
  minifySyntax: true,
  external: Object.keys(peerDependencies),
  // CommonJS packages among the bundled ones require Node's modules.
  banner: { js: "import{createRequire as requireFrom}from'node:module';const require=requireFrom(import.meta.url);" },
  plugins: [
    // Texts in 40 languages, of which the router uses one: half of the code that a start would load, 3 MB of memory.
    replaced('zod-locales', /^\.\.\/locales\/index\.js$/, 'export {}'),
    // An import declaration of this module reads all its exports, WebSocket too, for which Node loads fetch and HTTP/2: 14 MB.
    replaced('node-http', /^node:http$/, `export const {${HTTP_EXPORTS.join()}}=process.getBuiltinModule('node:http')`),
  ],
  metafile: true,
  logLevel: 'warning',
});
const bundled = packagesOf([...Object.keys(metafile.inputs), ...(await buildDashboard())]);
writeFileSync(join(dist, 'THIRD_PARTY_LICENSES'), licences(bundled));
writeFileSync(join(dist, 'sbom.cdx.json'), sbomOf(workspace, product, bundled));

/** Puts this text in the place of a module. */
function replaced(name: string, filter: RegExp, contents: string): Plugin {
  return {
    name,
    setup({ onResolve, onLoad }) {
      onResolve({ filter }, ({ path }) => ({ path, namespace: name }));
      onLoad({ filter: /.*/, namespace: name }, () => ({ contents }));
    },
  };
}

interface InstalledPackage extends BundledPackage {
  readonly path: string;
  readonly license: string;
}

/** The packages of files. */
function packagesOf(inputs: readonly string[]): InstalledPackage[] {
  const folders = inputs.flatMap((input) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1] ?? []);
  return [...new Set(folders)].toSorted().map((folder) => {
    const path = resolve(root, folder);
    const manifest = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as Omit<InstalledPackage, 'path'>;
    return { path, name: manifest.name, version: manifest.version, license: manifest.license };
  });
}

/** The licences of the packages that the bundle contains, as these ask for. */
function licences(packages: readonly InstalledPackage[]): string {
  return packages
    .map(({ path, name, version, license }) => {
      const file = readdirSync(path).find((each) => /^(licen[cs]e|copying)/i.test(each));
      const text =
        file === undefined || !existsSync(join(path, file))
          ? `License: ${license}`
          : readFileSync(join(path, file), 'utf8');
      return `${name} ${version}\n\n${text.trim()}\n`;
    })
    .join(`\n${'-'.repeat(80)}\n\n`);
}
