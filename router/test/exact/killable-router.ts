import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { metricOf } from '../chaos/scene.ts';
import { withHeldEnds } from '../harness/held-ends.ts';
import { until } from '../harness/within.ts';
import type { Journal } from './journal.ts';
import type { Tested } from './scene.ts';
import { program } from '../harness/program.ts';

/** A router as its users run it, which is killed, and started again on its data folder. */
export class KillableRouter implements Tested {
  url = '';
  readonly #options: readonly string[];
  readonly #journal: Journal;
  #child: ChildProcess | null = null;
  #changing: Promise<void> = Promise.resolve();

  static async start(options: readonly string[], journal: Journal): Promise<KillableRouter> {
    const router = new KillableRouter(options, journal);
    await router.#start();
    return router;
  }

  constructor(options: readonly string[], journal: Journal) {
    this.#options = options;
    this.#journal = journal;
  }

  replace(): Promise<void> {
    // All that want its end at this moment get one.
    this.#journal.routerDeaths.push(this.#journal.now());
    const child = this.#child!;
    child.kill('SIGKILL');
    this.#changing = this.#changing.then(async () => {
      if (this.#child !== child) return;
      await ended(child);
      await this.#start().catch((error: unknown) => {
        // Another kill came before it listened: the next router follows.
        if (this.#child?.killed !== true) throw error;
      });
    });
    return this.#changing;
  }

  settled(): Promise<void> {
    return this.#changing;
  }

  async serves(): Promise<void> {
    // One that was killed says nothing: whoever asks it next comes to know.
    const eligible = (): Promise<number> =>
      this.#metric('turnout_workers{eligible="true",role="regular"}').catch(() => 1);
    await until('an engine may get requests', async () => (await eligible()) > 0);
  }

  async idle(): Promise<void> {
    await until('the router is idle', async () => (await this.#metric('turnout_requests_in_flight')) === 0);
  }

  #metric(sample: string): Promise<number> {
    return metricOf(`${this.url}/metrics`, sample);
  }

  async close(): Promise<void> {
    await this.#changing;
    this.#child?.kill('SIGKILL');
    if (this.#child !== null) await ended(this.#child);
  }

  async #start(): Promise<void> {
    const words = ['serve', '--port', '0', '--prometheus-port', '0', ...this.#options];
    const child = spawn(process.execPath, [program, ...words], { env: { ...process.env, ...withHeldEnds } });
    this.#child = child;
    let said = '';
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (part: Buffer) => {
        said += part.toString();
        const url = /listening on (http:\/\/[^\s"]+)/.exec(said)?.[1];
        if (url !== undefined) resolve(url);
      });
    }
    void ended(child).then(() => reject(new Error(`the router ended before it listened:\n${said}`)));
    this.url = await promise;
    await until('the router knows its engines', async () => {
      const { workers } = (await (await fetch(`${this.url}/workers`)).json()) as { workers: { models?: unknown }[] };
      return workers.every(({ models }) => models !== null);
    });
  }
}

const ended = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
};
