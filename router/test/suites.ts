import { spawnSync } from 'node:child_process';
import { globSync } from 'node:fs';
import { dirname, join } from 'node:path';

interface Suite {
  readonly does: string;
  /** Test files that run one after the other; words of a command line select some by their path. */
  readonly files?: string;
  /** Another command, which gets the words of the command line. */
  readonly command?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Needs the built package. */
  readonly builds?: true;
}

const everyday = ['node', 'router/test/run.ts'];
const oldestNode = `--package=node-linux-${process.arch}@22.19.0`;

/** `npm test -- suite:NAME`: tests that need more than this checkout, or minutes. `docs/internals/testing.md` says what each needs. */
export const suites: Readonly<Record<string, Suite>> = {
  real: { does: 'real vLLM and SGLang on the CPU', files: 'router/test/real/*.test.ts' },
  trainers: {
    does: 'rollouts of AReaL and slime with real SGLang on the CPU',
    files: 'router/test/trainers/*.test.ts',
    builds: true,
  },
  jinja: { does: 'chat templates as Jinja2 renders them', files: 'router/test/jinja/*.test.ts' },
  clients: { does: 'SDKs of Tinker, Fireworks and OpenAI', files: 'router/test/clients/*.test.ts' },
  'tinker-trainers': {
    does: "tinker-cookbook's RL loop with SkyRL's trainers and real vLLM engines",
    files: 'router/test/tinker-trainers/*.test.ts',
  },
  peers: { does: 'the same requests through other routers', files: 'router/test/peers/*.test.ts' },
  metrics: { does: 'promtool and a real Prometheus', files: 'router/test/metrics/*.test.ts' },
  k8s: { does: 'discovery with a real kube-apiserver', files: 'router/test/k8s/*.test.ts' },
  envoy: { does: 'a real Envoy with turnout as endpoint picker', files: 'router/test/envoy/*.test.ts' },
  ray: { does: 'the router and engines as actors of a real Ray', files: 'router/test/ray/*.test.ts', builds: true },
  helm: { does: 'the Helm chart', files: 'router/test/helm/*.test.ts' },
  docs: { does: 'the code blocks of the documentation', files: 'router/test/docs/run/*.test.ts' },
  dashboard: { does: 'the dashboard in a browser', command: ['node', 'dashboard/test/run.ts'] },
  python: { does: 'the Python wheels', command: ['python3', 'python/test.py'], builds: true },
  feed: {
    does: 'examples/feed with agent-lightning, openai and slime',
    command: ['python3', 'examples/feed/test.py'],
    builds: true,
  },
  package: {
    does: 'the packed router on the oldest Node.js',
    files: 'router/test/package/install.test.ts',
    builds: true,
  },
  release: { does: 'npm run release in a fresh clone', files: 'router/test/package/release.test.ts' },
  dockerfile: { does: 'the steps of the Dockerfile', files: 'router/test/package/dockerfile.test.ts' },
  node22: {
    does: 'HTTP, proxy tests and threads on the oldest Node.js',
    command:
      `npm exec --yes ${oldestNode} -- node router/test/run.ts src/wire src/threads src/admit/heap src/cli/serve test/proxy`.split(
        ' ',
      ),
  },
  resume: {
    does: '500 generations through killed engines and aborts',
    command: [...everyday, 'test/resume'],
    env: { TURNOUT_RESUME_GENERATIONS: '500', TURNOUT_RESUME_FAULTS: '40' },
  },
  hung: { does: 'an engine that stops under load, with all defaults', files: 'router/test/chaos/long/*.test.ts' },
  chaos: { does: 'half an hour of faults and overload', command: ['node', 'router/test/chaos/long/run.ts'] },
  soak: { does: 'half an hour of everything at once', command: ['node', 'router/test/soak/run.ts'] },
  stalls: {
    does: 'the everyday tests in processes that stand still again and again',
    command: everyday,
    env: { NODE_OPTIONS: `--import ${join(import.meta.dirname, 'harness/stalls.ts')}`, TURNOUT_TEST_MS: '3600000' },
  },
  long: {
    does: 'the everyday tests with larger numbers, an hour',
    command: everyday,
    env: { TURNOUT_LONG: '1', TURNOUT_TEST_MS: '3600000' },
  },
};

/** The folders whose tests belong to a suite. */
export const foldersOfSuites = Object.values(suites).flatMap(({ files }) =>
  files === undefined ? [] : dirname(files),
);

/** @returns the exit code */
export function runSuite(root: string, name: string, words: readonly string[]): number {
  const suite = suites[name];
  if (suite === undefined) {
    const lines = Object.entries(suites).map(([each, { does }]) => `  npm test -- suite:${each.padEnd(11)} ${does}\n`);
    process.stderr.write(`there is no suite "${name}":\n${lines.join('')}`);
    return 1;
  }
  const run = ([program, ...args]: readonly string[]): number => {
    const env = { ...process.env, ...suite.env };
    const path = program === 'node' ? process.execPath : program!;
    return spawnSync(path, args, { cwd: root, env, stdio: 'inherit' }).status ?? 1;
  };
  if (suite.builds === true && run(['npm', 'run', 'build']) !== 0) return 1;
  if (suite.command !== undefined) return run([...suite.command, ...words]);
  const files = globSync(join(root, suite.files!)).filter(
    (file) => words.length === 0 || words.some((word) => file.includes(word)),
  );
  // Without files Node would run every test that it finds.
  if (files.length === 0) {
    process.stderr.write(`no test file of ${suite.files} has ${words.join(' or ')} in its path\n`);
    return 1;
  }
  return run(['node', '--test', '--test-concurrency=1', ...files.toSorted()]);
}
