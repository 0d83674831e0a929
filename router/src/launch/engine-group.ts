import { LineWriter } from '../observe/line-writer.ts';
import { RotatingFile, standardTarget } from '../observe/log-targets.ts';
import { EngineProcess } from './engine-process.ts';
import type { EnginePlan } from './plan.ts';
import type { RestartRules } from './restarts.ts';

export interface EngineGroupOptions {
  readonly restarts: RestartRules;
  /** Milliseconds that engines have to stop. */
  readonly stopMs: number;
  /** The folder of the engines' output files. */
  readonly logDir: string;
  readonly logMaxBytes: number;
  readonly logMaxFiles: number;
}

const PROGRESS_MS = 5_000;
const FLUSH_MS = 1_000;

/** All engines of a launch. Their output goes to stderr, each line with the engine's number, and to files. */
export class EngineGroup {
  readonly engines: readonly EngineProcess[];
  readonly #options: EngineGroupOptions;
  readonly #screen = new LineWriter(standardTarget(2), () => {});
  readonly #files: LineWriter[];
  #progress: NodeJS.Timeout | null = null;
  #startedMs = 0;
  #onAllGivenUp = (): void => {};
  #wasReady = false;

  /** Throws if the log folder cannot be created. */
  constructor(plans: readonly EnginePlan[], options: EngineGroupOptions) {
    this.#options = options;
    const { logDir, logMaxBytes, logMaxFiles } = options;
    this.#files = plans.map(({ index }) => {
      const file = new RotatingFile(logDir, logMaxBytes, logMaxFiles, `engine-${index}.log`);
      return new LineWriter(file, (error) => this.#say(`${logDir}: engine ${index}: not written: ${error.message}`));
    });
    this.engines = plans.map(
      (plan) =>
        new EngineProcess(plan, options.restarts, {
          onLine: (line) => {
            this.#screen.write(`[engine ${plan.index}] ${line}\n`);
            this.#files[plan.index]!.write(`${line}\n`);
          },
          onChange: (engine, what) => this.#changed(engine, what),
        }),
    );
  }

  /** @param onAllGivenUp no engine runs and none will be restarted */
  start(onAllGivenUp: () => void): void {
    this.#onAllGivenUp = onAllGivenUp;
    this.#startedMs = performance.now();
    this.#progress = setInterval(() => this.#tellProgress(), PROGRESS_MS);
    for (const engine of this.engines) {
      const { index, program, args, env } = engine.plan;
      const gpus = env['CUDA_VISIBLE_DEVICES'];
      const where = gpus === undefined || gpus === '' ? '' : `CUDA_VISIBLE_DEVICES=${gpus} `;
      this.#say(`engine ${index}: ${where}${[program, ...withoutKeys(args)].join(' ')}`);
      engine.start();
    }
  }

  async stop(): Promise<void> {
    if (this.#progress !== null) clearInterval(this.#progress);
    await Promise.all(this.engines.map((engine) => engine.stop(this.#options.stopMs)));
    this.#say('all engines are stopped');
    await Promise.all([this.#screen, ...this.#files].map((writer) => writer.flush(FLUSH_MS)));
  }

  #changed(engine: EngineProcess, what: string): void {
    const { index, url } = engine.plan;
    const log = engine.state === 'ready' ? '' : ` (log: ${this.#options.logDir}/engine-${index}.log)`;
    this.#say(`engine ${index} at ${url} ${what}${log}`);
    const areAllReady = this.engines.every(({ state }) => state === 'ready');
    const { length } = this.engines;
    if (areAllReady && !this.#wasReady && length > 1) this.#say(`all ${length} engines are ready`);
    this.#wasReady = areAllReady;
    if (this.engines.every(({ state }) => state === 'given_up')) this.#onAllGivenUp();
  }

  #tellProgress(): void {
    const missing = this.engines.filter(({ state }) => state === 'starting' || state === 'restarting');
    if (missing.length === 0) return;
    const secs = Math.round((performance.now() - this.#startedMs) / 1000);
    const list = missing.map(({ plan, waitsFor }) => `engine ${plan.index} (${waitsFor})`).join(', ');
    this.#say(`waiting for ${missing.length} of ${this.engines.length} engines, ${secs} s after the start: ${list}`);
  }

  #say(text: string): void {
    this.#screen.write(`[launch] ${text}\n`);
  }
}

/** Keys must not be logged. */
function withoutKeys(args: readonly string[]): string[] {
  return args.map((arg, i) => {
    const [flag = ''] = arg.split('=');
    if (isKey(flag) && arg !== flag) return `${flag}=…`;
    return isKey(args[i - 1] ?? '') ? '…' : arg;
  });
}

const isKey = (flag: string): boolean => /^--.*(?:key|token|secret|password)$/.test(flag);
