import { type ExecFileSyncOptions, execFileSync, spawnSync } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { binary, whyNotBuilt } from '../../router/test/harness/built.ts';

/** Installs Ray and the Python package of this checkout, and runs `run.py` with them. Uses the built router (`npm run build`) if there is one. */

const root = join(import.meta.dirname, '../..');

async function main(): Promise<number> {
  const missing = await whyNotBuilt('ray/install.sh', 'Ray 2.60');
  if (missing !== false) {
    const hint = 'With a Ray of your own: pip install turnout ray, then python examples/ray/run.py';
    process.stderr.write(`demo: ${missing}\n${hint}\n`);
    return 1;
  }
  const python = binary('ray', 'python');
  const packages = mkdtempSync(join(tmpdir(), 'turnout-ray-'));
  try {
    process.stderr.write('demo: building the Python package\n');
    const quiet: ExecFileSyncOptions = { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] };
    if (!existsSync(join(root, 'router/dist/cli/main.js'))) execFileSync('npm', ['run', 'build'], quiet);
    execFileSync(python, ['python/build.py'], quiet);
    const [wheel] = globSync('python/dist/turnout-*.whl', { cwd: root });
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps', '--target', packages];
    execFileSync(python, [...pip, wheel!], quiet);
    const env = {
      ...process.env,
      PYTHONPATH: [packages, import.meta.dirname].join(delimiter),
      PYTHONWARNINGS: 'ignore',
    };
    return spawnSync(python, [join(import.meta.dirname, 'run.py')], { cwd: root, env, stdio: 'inherit' }).status ?? 1;
  } finally {
    rmSync(packages, { recursive: true });
  }
}

process.exitCode = await main();
