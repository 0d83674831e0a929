import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { freePort } from '../harness/free-port.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { type SpawnedSimEngine, spawnSimEngine } from '../../../simulator/src/spawn.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { type Environment, pythonOf } from './environments.ts';

const main = join(import.meta.dirname, '../../src/cli/main.ts');
const steps = join(import.meta.dirname, 'steps.py');

/** A line of `steps.py`. */
export interface Said {
  readonly step: string;
  readonly [field: string]: unknown;
}

/** What an engine did for one sample. */
export interface Served extends FinishedRecord {
  readonly engine: string;
}

/** Simulated engines and a router in front of them, each a process that can be killed. */
export class Scene {
  readonly url: string;
  readonly folder: string;
  readonly engines: readonly SpawnedSimEngine[];
  /** What the router logged, all of its processes together. */
  readonly log: string[] = [];
  /** Called when a sample is dispatched, with the number of samples that have been. */
  onDispatch: (count: number) => void = () => {};
  readonly #flags: readonly string[];
  #router: ChildProcess | null = null;

  constructor(folder: string, port: number, engines: readonly SpawnedSimEngine[], flags: readonly string[]) {
    this.folder = folder;
    this.url = `http://127.0.0.1:${port}`;
    this.engines = engines;
    const urls = engines.map(({ url }) => url);
    const own = ['--host', '127.0.0.1', '--port', String(port), '--prometheus-port', '0'];
    this.#flags = [main, 'serve', '--worker-urls', ...urls, ...own, '--data-dir', join(folder, 'data'), ...flags];
  }

  /** Starts the router, or another one in its place. Resolves when it listens. */
  async startRouter(): Promise<void> {
    // The variables of these tests are no options of the router.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TURNOUT_')));
    const child = spawn(process.execPath, this.#flags, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#router = child;
    const listens = Promise.withResolvers<void>();
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        this.log.push(line);
        if (line.includes('[sticky-routing] dispatch')) this.onDispatch(this.dispatched.length);
        if (line.includes('listening on http') && !line.includes('admin')) listens.resolve();
      });
    }
    child.once('exit', (status) =>
      listens.reject(new Error(`the router exited with ${status}:\n${this.log.join('\n')}`)),
    );
    await listens.promise;
  }

  async endRouter(signal: NodeJS.Signals): Promise<void> {
    if (this.#router === null || this.#router.exitCode !== null || this.#router.signalCode !== null) return;
    this.#router.kill(signal);
    await once(this.#router, 'exit');
  }

  /** The routing keys of the router's dispatch lines, in their order; `none` without one. */
  get dispatched(): string[] {
    return this.log.flatMap(
      (line) => /\[sticky-routing\] dispatch idx=\d+ model=\S+ session_id=([^\s"]+)/.exec(line)?.[1] ?? [],
    );
  }

  /** What the engines served, by their own records. */
  get served(): Served[] {
    return this.engines.flatMap(({ url }, i) => {
      const file = logPathOf(this.folder, i);
      const lines = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
      return lines.map((line): Served => ({ ...(JSON.parse(line) as FinishedRecord), engine: url }));
    });
  }

  /** Runs steps of a program with the SDK to their end. */
  async run(client: Environment, args: readonly string[], script = steps): Promise<Said[]> {
    const child = spawn(pythonOf(client), [script, ...args, '--base-url', this.url], {
      stdio: ['ignore', 'pipe', 'pipe'],
      // Nothing may be asked of the model hub, and nothing be written to the user's home.
      env: { ...process.env, HF_HUB_OFFLINE: '1', HOME: this.folder, TINKER_TELEMETRY: '0' },
    });
    const stop = (): boolean => child.kill('SIGKILL');
    process.once('exit', stop);
    const said: Said[] = [];
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
    createInterface({ input: child.stdout }).on('line', (line) => {
      said.push(JSON.parse(line) as Said);
    });
    const [status] = (await once(child, 'close')) as [number | null];
    process.off('exit', stop);
    assert.equal(status, 0, `${client} failed:\n${errors}\n${this.log.slice(-20).join('\n')}`);
    return said;
  }
}

const logPathOf = (folder: string, i: number): string => join(folder, `engine-${i}.jsonl`);

export interface SceneOptions {
  readonly kind: 'sglang' | 'vllm';
  readonly engines?: number;
  readonly sim?: Partial<SimOptions>;
  readonly flags?: readonly string[];
  /** Without it the router serves the Tinker API. */
  readonly api?: 'fireworks';
}

/** Starts engines and a router for a test, and ends them after it. */
export async function startScene(
  t: TestContext,
  { kind, engines = 4, sim = {}, flags = [], api }: SceneOptions,
): Promise<Scene> {
  const folder = temporaryFolder(t);
  const started = await Promise.all(
    Array.from({ length: engines }, (_, i) =>
      spawnSimEngine({ kind, timeScale: 0.05, seed: 1, ...sim, logPath: logPathOf(folder, i) }),
    ),
  );
  t.after(() => Promise.all(started.map((engine) => engine.kill())));
  const scene = new Scene(folder, await freePort(), started, api === undefined ? ['--tinker', ...flags] : flags);
  t.after(() => scene.endRouter('SIGKILL'));
  await scene.startRouter();
  return scene;
}
