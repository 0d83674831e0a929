import { LineWriter } from '../observe/line-writer.ts';
import { RotatingFile, standardTarget } from '../observe/log-targets.ts';
import { EngineProcess } from './engine-process.ts';
import type { EnginePlan } from './plan.ts';
import type { RestartRules } from './restarts.ts';
import { withoutKeys } from './without-keys.ts';

export interface EngineGroupOptions {
  readonly restarts: RestartRules;
  readonly stopMs: number;
  readonly logDir: string;
  readonly logMaxBytes: number;
  readonly logMaxFiles: number;
  /** Shows on a terminal which engines are ready. Without it a line says so every five seconds. */
  readonly showProgress?: (look: () => Readonly<Record<string, Step>>) => Shown;
}

interface Step {
  readonly done: number;
  readonly total: number;
  readonly text: string;
}

interface Shown {
  say(line: string): void;
  stop(): void;
}

const PROGRESS_MS = 5_000;
const FLUSH_MS = 1_000;

/** All engines of a launch. Their output goes to stderr, each line with the engine's number, and to files. */
export class EngineGroup {
  readonly engines: readonly EngineProcess[];
  readonly #options: EngineGroupOptions;
  readonly #screen = new LineWriter(standardTarget(2), () => {});
  readonly #files: readonly RotatingFile[];
  readonly #writers: readonly LineWriter[];
  #progress: NodeJS.Timeout | null = null;
  #shown: Shown | null = null;
  #startedMs = 0;
  #onAllGivenUp = (_urls: ReadonlySet<string>): void => {};
  #wasReady = false;
  #isStopping = false;

  /** Throws if the log folder cannot be created. */
  constructor(plans: readonly EnginePlan[], options: EngineGroupOptions) {
    this.#options = options;
    const { logDir, logMaxBytes, logMaxFiles } = options;
    this.#files = plans.map(({ index }) => new RotatingFile(logDir, logMaxBytes, logMaxFiles, `engine-${index}.log`));
    this.#writers = this.#files.map(
      (file, index) =>
        new LineWriter(file, (error) => this.#say(`${logDir}: engine ${index}: not written: ${error.message}`)),
    );
    this.engines = plans.map(
      (plan) =>
        new EngineProcess(plan, options.restarts, {
          onLine: (line) => {
            this.#print(`[engine ${plan.index}] ${line}`);
            this.#writers[plan.index]!.write(`${line}\n`);
          },
          onChange: (engine, what) => this.#changed(engine, what),
        }),
    );
  }

  /** @param onAllGivenUp none of these engines runs, and none will be restarted */
  start(onAllGivenUp: (urls: ReadonlySet<string>) => void): void {
    this.#onAllGivenUp = onAllGivenUp;
    this.#startedMs = performance.now();
    if (this.#options.showProgress === undefined)
      this.#progress = setInterval(() => this.#say(this.#waitsFor()), PROGRESS_MS);
    this.#follow();
    for (const engine of this.engines) {
      const { index, program, args, env } = engine.plan;
      const gpus = env['CUDA_VISIBLE_DEVICES'];
      const where = gpus === undefined || gpus === '' ? '' : `CUDA_VISIBLE_DEVICES=${gpus} `;
      this.#say(`engine ${index}: ${where}${[program, ...withoutKeys(args)].join(' ')}`);
      engine.start();
    }
  }

  /** Another program may have renamed the log files: the next lines go to new ones. */
  reopenLogs(): void {
    for (const file of this.#files) file.reopen();
  }

  async stop(): Promise<void> {
    if (this.#progress !== null) clearInterval(this.#progress);
    this.#shown?.stop();
    this.#shown = null;
    this.#isStopping = true;
    await Promise.all(this.engines.map((engine) => engine.stop(this.#options.stopMs)));
    this.#say('all engines are stopped');
    await Promise.all([this.#screen, ...this.#writers].map((writer) => writer.flush(FLUSH_MS)));
  }

  #changed(engine: EngineProcess, what: string): void {
    const { index, url } = engine.plan;
    const log = engine.state === 'ready' ? '' : ` (log: ${this.#options.logDir}/engine-${index}.log)`;
    this.#say(`engine ${index} at ${url} ${what}${log}`);
    const areAllReady = this.engines.every(({ state }) => state === 'ready');
    const { length } = this.engines;
    if (areAllReady && !this.#wasReady && length > 1) this.#say(`all ${length} engines are ready`);
    this.#wasReady = areAllReady;
    this.#follow();
    if (this.engines.every(({ state }) => state === 'given_up'))
      this.#onAllGivenUp(new Set(this.engines.map(({ plan: { url: each } }) => each)));
  }

  /** '' if all engines are ready. */
  #waitsFor(): string {
    const missing = this.#missing();
    if (missing.length === 0) return '';
    const secs = Math.round((performance.now() - this.#startedMs) / 1000);
    const list = missing.map(({ plan, waitsFor }) => `engine ${plan.index} (${waitsFor})`).join(', ');
    return `waiting for ${missing.length} of ${this.engines.length} engines, ${secs} s after the start: ${list}`;
  }

  #missing(): readonly EngineProcess[] {
    return this.engines.filter(({ state }) => state === 'starting' || state === 'restarting');
  }

  /** Shows the bar while an engine is not ready. */
  #follow(): void {
    const isWanted = this.#missing().length > 0 && !this.#isStopping;
    if (isWanted) {
      const total = this.engines.length;
      this.#shown ??=
        this.#options.showProgress?.(() => ({
          launch: { done: total - this.#missing().length, total, text: this.#waitsFor() },
        })) ?? null;
    } else {
      this.#shown?.stop();
      this.#shown = null;
    }
  }

  #say(text: string): void {
    if (text !== '') this.#print(`[launch] ${text}`);
  }

  #print(line: string): void {
    if (this.#shown === null) this.#screen.write(`${line}\n`);
    else this.#shown.say(line);
  }
}
