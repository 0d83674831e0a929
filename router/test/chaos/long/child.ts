import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import type { ProcessReport, Question } from './process-report.ts';
import type { RouterReport } from './router-process.ts';
import type { Sabotage } from './sabotage.ts';

/** A process of the run that answers questions about itself. */
export class Child<Report extends ProcessReport = ProcessReport> {
  readonly process: ChildProcess;
  readonly #waiting = new Map<number, (report: Report | null) => void>();
  #asked = 0;
  /** Why it ended on its own, null while it runs. */
  death: string | null = null;
  #isStopping = false;

  constructor(process: ChildProcess) {
    this.process = process;
    process.on('message', ({ n, report }: { n: number; report: Report }) => {
      this.#waiting.get(n)?.(report);
      this.#waiting.delete(n);
    });
    process.on('exit', (code, signal) => {
      if (!this.#isStopping) this.death = `ended by itself: ${signal ?? `exit code ${code}`}`;
      for (const answer of this.#waiting.values()) answer(null);
    });
  }

  async ask(question: Question): Promise<Report> {
    if (this.death !== null) throw new Error(this.death);
    const n = ++this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(n, (report) =>
        report === null ? reject(new Error('the process has ended')) : resolve(report),
      );
      this.process.send({ n, question });
    });
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise((resolve) => {
      this.process.once('exit', resolve);
    });
    const timer = setTimeout(() => this.process.kill('SIGKILL'), 10_000);
    if (this.process.connected) this.process.send({ n: 0, question: 'stop' });
    await ended;
    clearTimeout(timer);
  }
}

async function start<Ready>(file: string, args: readonly string[]): Promise<[ChildProcess, Ready]> {
  const child = fork(join(import.meta.dirname, file), [...args], { execArgv: ['--expose-gc'] });
  return new Promise((resolve, reject) => {
    child.once('message', ({ ready }: { ready: Ready }) => resolve([child, ready]));
    child.once('exit', (code) => reject(new Error(`${file} ended with ${code} before it was ready`)));
  });
}

export type RouterChild = Child<ProcessReport & RouterReport> & { readonly port: number; readonly metricsUrl: string };

export async function startIdle(): Promise<Child> {
  const [child] = await start('idle-process.ts', []);
  return new Child(child);
}

export async function startRouterChild(
  options: Readonly<Record<string, unknown>>,
  fault: Sabotage | null,
): Promise<RouterChild> {
  const defaults = { port: 0, prometheusPort: 0 };
  const text = JSON.stringify({ options: { ...defaults, ...options }, fault });
  const [child, { url, metricsUrl }] = await start<{ url: string; metricsUrl: string }>('router-process.ts', [text]);
  const router = new Child<ProcessReport & RouterReport>(child);
  return Object.assign(router, { port: Number(new URL(url).port), metricsUrl });
}
