import { ask } from '../engines/ask.ts';
import { ENGINE_HOST } from './engine-command.ts';
import { GuardedProcess } from './guarded-process.ts';
import type { EnginePlan } from './plan.ts';
import { type RestartRules, restarts } from './restarts.ts';
import { withoutKeys } from './without-keys.ts';

export type EngineState = 'starting' | 'ready' | 'restarting' | 'given_up' | 'stopped';

const READY_CHECK_MS = 500;
/** An engine that exits this soon and never listened has wrong arguments: a restart does not help. */
const QUICK_MS = 15_000;
const QUICK_DEATHS = 3;
/** SGLang's /health generates a token, and the first one takes long. */
const READY_TIMEOUT_MS = 10_000;

export interface EngineEvents {
  onLine(line: string): void;
  /** The engine is ready, exited, or will not be restarted. */
  onChange(engine: EngineProcess, what: string): void;
}

/** Keeps one engine running: restarts it on the same port when it exits. */
export class EngineProcess {
  readonly plan: EnginePlan;
  state: EngineState = 'starting';
  waitsFor = 'its process';
  readonly #events: EngineEvents;
  readonly #restartDelay: ReturnType<typeof restarts>;
  #process: GuardedProcess | null = null;
  #timer: NodeJS.Timeout | null = null;
  #startedMs = 0;
  #readyMs = 0;
  #wasEverReady = false;
  /** Consecutive exits, each soon after its start. */
  #quickDeaths = 0;

  constructor(plan: EnginePlan, rules: RestartRules, events: EngineEvents) {
    this.plan = plan;
    this.#events = events;
    this.#restartDelay = restarts(rules);
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  start(): void {
    this.state = 'starting';
    this.#startedMs = performance.now();
    const process = new GuardedProcess(this.plan, (line) => this.#events.onLine(line));
    this.#process = process;
    void process.ended.then((how) => this.#died(how));
    this.#checkSoon(process);
  }

  /** Sends SIGTERM, and SIGKILL after `graceMs`. Resolves when the process has ended; it is not restarted. */
  async stop(graceMs: number): Promise<void> {
    this.state = 'stopped';
    if (this.#timer !== null) clearTimeout(this.#timer);
    const process = this.#process;
    if (process === null) return;
    const timer = setTimeout(() => process.kill(), graceMs);
    process.terminate();
    await process.ended;
    clearTimeout(timer);
  }

  #checkSoon(process: GuardedProcess): void {
    this.#timer = setTimeout(() => void this.#check(process), READY_CHECK_MS);
  }

  async #check(process: GuardedProcess): Promise<void> {
    const endpoint = { host: ENGINE_HOST, port: this.plan.port, isTls: false, tls: null, lookup: null };
    let problem: string | null;
    try {
      const { status } = await ask(endpoint, '/health', READY_TIMEOUT_MS);
      problem = status === 200 ? null : `/health answers ${status}`;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      problem = code === 'ECONNREFUSED' ? 'it does not listen yet' : message;
    }
    if (process !== this.#process || this.state !== 'starting') return;
    if (problem !== null) {
      this.waitsFor = problem;
      this.#checkSoon(process);
      return;
    }
    this.state = 'ready';
    this.#readyMs = performance.now();
    this.#wasEverReady = true;
    this.#events.onChange(this, `is ready after ${seconds(this.#readyMs - this.#startedMs)} s`);
  }

  #died(how: string): void {
    this.#process = null;
    if (this.state === 'stopped') return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    const nowMs = performance.now();
    this.#quickDeaths = nowMs - this.#startedMs < QUICK_MS ? this.#quickDeaths + 1 : 0;
    if (!this.#wasEverReady && this.#quickDeaths >= QUICK_DEATHS) {
      this.state = 'given_up';
      const { program, args } = this.plan;
      const command = [program, ...withoutKeys(args).slice(0, 2)].join(' ');
      this.#events.onChange(
        this,
        `${how}; it exited ${QUICK_DEATHS} times without listening and is not started again. Does "${command} …" start an engine here (is it installed)? --engine-command gives another command`,
      );
      return;
    }
    const waitMs = this.#restartDelay(nowMs, this.state === 'ready' ? nowMs - this.#readyMs : 0);
    if (waitMs === null) {
      this.state = 'given_up';
      this.#events.onChange(this, `${how}; it keeps failing and is not started again`);
      return;
    }
    this.state = 'restarting';
    this.waitsFor = 'its restart';
    this.#timer = setTimeout(() => this.start(), waitMs);
    this.#events.onChange(this, `${how}; it is started again in ${seconds(waitMs)} s`);
  }
}

const seconds = (ms: number): string => (ms / 1000).toFixed(ms < 10_000 && ms % 1000 !== 0 ? 1 : 0);
