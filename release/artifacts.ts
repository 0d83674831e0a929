import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pythonVersion, versionOf } from './version.ts';

/** Builds what is published, and checks each package as a user gets it: installed alone, in a folder of its own. */

/** @throws an error with the output of the command if it fails */
export function run(cwd: string, [program, ...args]: readonly string[], env: NodeJS.ProcessEnv = process.env): string {
  const { status, error, stdout, stderr } = spawnSync(program!, args, {
    cwd,
    env,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  if (status === 0) return stdout;
  throw new Error(`${[program, ...args].join(' ')} failed:\n${error?.message ?? `${stdout}${stderr}`}`);
}

const TWINE = ['twine==7.0.0', 'pypi-attestations==0.0.30'];

/** After `npm run build`. @returns the path of the packed package */
export function packNpm(root: string, out: string): string {
  run(root, ['npx', 'publint', '--strict', 'router']);
  run(root, ['npm', 'pack', '--workspace', 'router', '--pack-destination', out]);
  const version = versionOf(root);
  const tarball = join(out, `turnout-${version}.tgz`);
  inFolder((folder) => {
    run(folder, ['npm', 'install', '--global', '--prefix', folder, '--no-audit', '--no-fund', tarball]);
    const home = join(folder, 'lib/node_modules/turnout');
    checkSbom(readFileSync(join(home, 'dist/sbom.cdx.json'), 'utf8'), version);
    checkVersion(run(folder, [process.execPath, join(home, 'bin/turnout.js'), '--version']), version);
  });
  return tarball;
}

export interface Wheels {
  readonly paths: readonly string[];
  /** A Python with the tools that publish them. */
  readonly python: string;
}

/** After `npm run build`. */
export function packWheels(root: string, out: string): Wheels {
  const python3 = process.env['TURNOUT_PYTHON'] ?? 'python3';
  const built = join(root, 'python/dist');
  run(root, [python3, 'python/build.py']);
  const paths = readdirSync(built).map((name) => {
    copyFileSync(join(built, name), join(out, name));
    return join(out, name);
  });
  const version = versionOf(root);
  for (const name of ['turnout', 'turnout_compat']) {
    const expected = `${name}-${pythonVersion(version)}-py3-none-any.whl`;
    if (!paths.some((path) => basename(path) === expected))
      throw new Error(`python/build.py has not built ${expected}`);
  }
  const tools = join(out, 'tools');
  run(root, [python3, '-m', 'venv', tools]);
  const python = join(tools, 'bin/python');
  run(root, [python, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...TWINE]);
  run(root, [python, '-m', 'twine', 'check', '--strict', ...paths]);
  inFolder((folder) => {
    run(folder, [python3, '-m', 'venv', folder]);
    const pip = [join(folder, 'bin/python'), '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
    run(folder, [...pip, ...paths]);
    // Without Node.js on the PATH: the wheel depends on a package that contains it.
    const env = { ...process.env, PATH: join(folder, 'bin') };
    checkVersion(run(folder, [join(folder, 'bin/turnout'), '--version'], env), version);
    const find = `import importlib.metadata as m; print(next(f for f in m.files("turnout") if "/sboms/" in str(f)).read_text())`;
    checkSbom(run(folder, [join(folder, 'bin/python'), '-c', find]), version);
  });
  return { paths, python };
}

/** Builds the image for the local container engine. @returns its name */
export function buildImage(root: string): string {
  const name = `turnout:${versionOf(root)}`;
  run(root, ['docker', 'buildx', 'build', '--load', `--tag=${name}`, '--file=deploy/Dockerfile', '.']);
  checkVersion(run(root, ['docker', 'run', '--rm', name, '--version']), versionOf(root));
  return name;
}

/** Writes the SBOM beside the packages, and the sums of all. @returns the names of the files */
export function writeSums(root: string, out: string, packages: readonly string[]): string[] {
  const sbom = join(out, `turnout-${versionOf(root)}.sbom.cdx.json`);
  copyFileSync(join(root, 'router/dist/sbom.cdx.json'), sbom);
  const lines = [...packages, sbom].map(
    (path) => `${createHash('sha256').update(readFileSync(path)).digest('hex')}  ${basename(path)}\n`,
  );
  writeFileSync(join(out, 'SHA256SUMS'), lines.join(''));
  return [...packages, sbom, join(out, 'SHA256SUMS')].map((path) => basename(path));
}

function checkVersion(output: string, version: string): void {
  if (!output.startsWith(`turnout ${version}\n`))
    throw new Error(`the installed turnout --version printed "${output.trim()}" in place of turnout ${version}`);
}

interface Bom {
  readonly bomFormat: string;
  readonly metadata: { readonly component: { readonly purl: string } };
  readonly components: readonly { readonly purl: string; readonly hashes?: readonly unknown[] }[];
}

/** @throws an error if this is not the SBOM of this version, or a component has no hash */
export function checkSbom(text: string, version: string): void {
  const { bomFormat, metadata, components } = JSON.parse(text) as Bom;
  if (bomFormat !== 'CycloneDX' || metadata.component.purl !== `pkg:npm/turnout@${version}`)
    throw new Error(`the SBOM describes ${metadata.component.purl}, not turnout ${version}`);
  const bad = components.filter(({ purl, hashes = [] }) => !purl.startsWith('pkg:npm/') || hashes.length === 0);
  if (components.length === 0 || bad.length > 0)
    throw new Error(`the SBOM has ${components.length} components, ${bad.length} of them without a hash`);
}

function inFolder(work: (folder: string) => void): void {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-release-'));
  try {
    work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function emptied(folder: string): string {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}
