import { type ChildProcess, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePorts } from '../../harness/free-port.ts';
import { endWithRunner, killGroup, spawnGuarded } from '../../harness/guarded.ts';
import { temporaryFolder } from '../../harness/temporary-folder.ts';
import { until } from '../../harness/within.ts';

const root = join(import.meta.dirname, '../../../..');
const commands = join(import.meta.dirname, 'commands');
const BLOCK_MS = 90_000;
/** How long a block waits for a router that the block before has started. */
const SERVES_MS = 20_000;
const READY_MS = 3_000;

endWithRunner();

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

/** Where the blocks of one page run, in their order: a folder, and ports in place of those of the page. */
export class Sandbox {
  readonly folder: string;
  readonly #port: number;
  readonly #env: NodeJS.ProcessEnv;
  /** The blocks that have run. What they started in the background is in their process groups. */
  readonly #blocks: ChildProcess[] = [];

  private constructor(folder: string, port: number, env: NodeJS.ProcessEnv) {
    this.folder = folder;
    this.#port = port;
    this.#env = env;
  }

  /** @param python the folder of programs of an environment */
  static async open(t: TestContext, python: string): Promise<Sandbox> {
    const folder = temporaryFolder(t);
    const port = await freePorts(6);
    const sandbox = new Sandbox(folder, port, {
      ...process.env,
      PATH: `${commands}:${python}:${process.env['PATH']}`,
      PYTHONPATH: `${join(root, 'python/turnout/src')}:${folder}`,
      DOCS_FOLDER: folder,
      DOCS_NODE: process.execPath,
      DOCS_TURNOUT: join(root, 'router/bin/turnout.js'),
      DOCS_CURL: execFileSync('sh', ['-c', 'command -v curl'], { encoding: 'utf8' }).trim(),
      TURNOUT_PORT: String(port + 4),
      TURNOUT_PROMETHEUS_PORT: '0',
    });
    // The Python package reads its own version.
    mkdirSync(join(folder, 'turnout-0.dist-info'));
    sandbox.write('turnout-0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: turnout\nVersion: 0\n');
    t.after(() => sandbox.#stop());
    return sandbox;
  }

  /** Two programs that a page may take for granted: simulated engines at the addresses that it uses, and a router for them. */
  async startFleet(): Promise<void> {
    await this.shell(
      'turnout sim --workers 4 --first-port 41001\nturnout serve --worker-urls http://gpu-1:8000 http://gpu-2:8000',
    );
  }

  /** The addresses of the page become those of the sandbox. */
  rewritten(text: string): string {
    const port = (index: number): number => this.#port + index;
    return text
      .replaceAll('--host 0.0.0.0', '--host 127.0.0.1')
      .replaceAll('*.gpu.internal', '127.0.0.1')
      .replaceAll('/var/lib/turnout', join(this.folder, 'data'))
      .replaceAll(
        /\b(?:gpu-1|a\.gpu\.internal|host1|worker1|127\.0\.0\.1):8000\b|\b10\.0\.0\.1:(?:30001|8001)\b/g,
        '127.0.0.1:41001',
      )
      .replaceAll(
        /\b(?:gpu-2|host2|worker2):8000\b|\bworker2:8001\b|\bgpu-2:30000\b|\b10\.0\.0\.2:(?:30002|8001)\b/g,
        '127.0.0.1:41002',
      )
      .replaceAll(/\bgpu-1:8001\b|\b10\.0\.0\.3:30001\b/g, '127.0.0.1:41003')
      .replaceAll(/\b(?:HOST|ROUTER|router|localhost):30000\b/g, '127.0.0.1:30000')
      .replaceAll('4100{1,2,3,4}', `{${port(0)},${port(1)},${port(2)},${port(3)}}`)
      .replaceAll(/\b4100([1-4])\b/g, (_, index: string) => String(port(Number(index) - 1)))
      .replaceAll(/\b3000([01])\b/g, (_, index: string) => String(port(4 + Number(index))));
  }

  /** Runs a block of shell commands; its variables stay for the next one. @returns its output; throws with it if a command fails */
  async shell(code: string): Promise<string> {
    const variables = [...code.matchAll(/^([A-Z]+)=/gm)].map(([, name]) => `declare -p ${name} >> .variables`);
    const lines = ['set -eo pipefail', '[ ! -f .variables ] || . ./.variables', this.rewritten(code), ...variables];
    const output = await this.#run('bash', ['-c', lines.join('\n')]);
    if (/\bturnout (?:-- )?serve\b(?:\\\n|.)*&(?: *#.*)?$/m.test(code))
      await until('the router is started', () => existsSync(join(this.folder, 'router.pid')));
    return output;
  }

  async python(code: string): Promise<string> {
    this.write('block.py', code);
    return this.#run('python', ['block.py']);
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.folder, name), this.rewritten(text));
  }

  async #run(program: string, args: readonly string[]): Promise<string> {
    await this.#untilServing();
    const child = spawnGuarded(program, args, { cwd: this.folder, env: this.#env });
    this.#blocks.push(child);
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
    const timer = setTimeout(() => killGroup(child), BLOCK_MS);
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    clearTimeout(timer);
    if (code !== 0) throw new Error(`${signal ?? `exit code ${code}`}:\n${text}${this.#routerLog()}`);
    return text;
  }

  /** The block before may have started a router in the background. It need not be ready: some pages show routers that are not. */
  async #untilServing(): Promise<void> {
    if (!existsSync(join(this.folder, 'router.pid'))) return;
    const answers = (path: string) => (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${this.#port + 4}${path}`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until('the router listens', answers('/liveness'), SERVES_MS).catch(() => {
      throw new Error(`the router does not listen${this.#routerLog()}`);
    });
    await until('the router is ready', answers('/readiness'), READY_MS).catch(() => {});
  }

  #routerLog(): string {
    const pointer = join(this.folder, 'router.log');
    if (!existsSync(pointer)) return '';
    return `\nthe router:\n${readFileSync(readFileSync(pointer, 'utf8').trim(), 'utf8').slice(-2_000)}`;
  }

  async #stop(): Promise<void> {
    const file = join(this.folder, 'pids');
    const pids = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').map(Number) : [];
    for (const pid of pids.filter(isAlive)) process.kill(pid, 'SIGTERM');
    await until('all have ended', () => !pids.some(isAlive), 10_000).catch(() => {
      for (const pid of pids.filter(isAlive)) process.kill(pid, 'SIGKILL');
    });
    this.#blocks.forEach(killGroup);
  }
}
