// npm run release: builds and checks what is published, and publishes it only with --publish. RELEASING.md has the steps.
import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { buildImage, emptied, packNpm, packWheels, run, writeSums } from './artifacts.ts';
import { type Target, commandsOf, targets } from './publish.ts';
import { hasBuildx, obstacles } from './readiness.ts';
import { setVersion, versionOf } from './version.ts';

const usage = `npm run release -- [options]
  --publish              publishes what was built and checked; without it nothing is published
  --only X,Y             of ${targets.join(', ')} (default: all)
  --image REGISTRY/NAME  the name under which the image is pushed
  --out FOLDER           folder of the packages (default: out/release)
  --set-version X.Y.Z    writes the version in every file that has it, and exits
  --help
`;

const root = join(import.meta.dirname, '..');
const say = (line: string): void => void process.stdout.write(`${line}\n`);

function chosen(only: string | undefined): readonly Target[] {
  if (only === undefined) return targets;
  const words = only.split(',');
  const unknown = words.filter((word) => !targets.some((target) => target === word));
  if (unknown.length > 0) throw new Error(`--only ${unknown.join(',')}: choose from ${targets.join(', ')}`);
  return targets.filter((target) => words.includes(target));
}

function main(): void {
  const { values } = parseArgs({
    options: {
      publish: { type: 'boolean', default: false },
      only: { type: 'string' },
      image: { type: 'string' },
      out: { type: 'string', default: 'out/release' },
      'set-version': { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return say(usage);
  if (values['set-version'] !== undefined) {
    setVersion(root, values['set-version']);
    return say(`release: the version is ${values['set-version']} in every file that has it`);
  }
  const wanted = chosen(values.only);
  const problems = obstacles(root, wanted, values.image);
  if (values.publish && problems.length > 0) throw new Error(`not published:\n${list(problems)}`);
  const out = emptied(resolve(root, values.out));
  const version = versionOf(root);
  say(`release: turnout ${version}`);
  step('the router, the dashboard and the SBOM', () => run(root, ['npm', 'run', 'build']));
  const packages: string[] = [];
  const tarball = join(out, `turnout-${version}.tgz`);
  if (wanted.includes('npm')) packages.push(step('the npm package', () => packNpm(root, out)));
  const wheels = wanted.includes('pypi') ? step('the wheels', () => packWheels(root, out)) : { paths: [], python: '' };
  packages.push(...wheels.paths);
  if (wanted.includes('image')) {
    if (hasBuildx()) step('the image', () => buildImage(root));
    else
      say(
        'release: the image is NOT built: no container engine is running (npm test -- suite:dockerfile runs its steps)',
      );
  }
  say(`\n${values.out}:\n${list(writeSums(root, out, packages))}`);
  const artifacts = { version, tarball, ...wheels, wheels: wheels.paths, image: values.image ?? 'REGISTRY/NAME' };
  const commands = wanted.flatMap((target) => commandsOf(target, artifacts));
  if (!values.publish) {
    say(
      `\nNothing was published. --publish would run:\n${list(commands.map((words) => words.join(' ').replaceAll(`${root}/`, '')))}`,
    );
    if (problems.length > 0) say(`\nIt refuses until this is done:\n${list(problems)}`);
    return;
  }
  for (const [program, ...words] of commands) {
    say(`release: ${[program, ...words].join(' ')}`);
    const { status } = spawnSync(program!, words, { cwd: root, stdio: 'inherit' });
    if (status !== 0)
      throw new Error('the command above failed; those before it have published: publish the rest with --only');
  }
  say(`release: turnout ${version} is published: ${wanted.join(', ')}`);
}

const list = (lines: readonly string[]): string => lines.map((line) => `  ${line}`).join('\n');

function step<Result>(what: string, work: () => Result): Result {
  process.stdout.write(`release: ${what} … `);
  const startMs = performance.now();
  const result = work();
  say(`built and checked, ${((performance.now() - startMs) / 1000).toFixed(0)} s`);
  return result;
}

try {
  main();
} catch (error) {
  process.stderr.write(`\nrelease: ${(error as Error).message}\n`);
  process.exitCode = 1;
}
