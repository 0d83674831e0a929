import { setTimeout as delay } from 'node:timers/promises';
import { ConfigError } from '../config/load.ts';
import { type Step, showProgress } from './progress.ts';

export interface SwapFlags {
  readonly url: string;
  readonly deployment?: string;
  readonly path?: string;
  readonly transition?: string;
  readonly resetPromptCache?: string;
  readonly watch?: boolean;
  readonly apiKey?: string;
}

/** What `GET /swap` says of a deployment, as far as it is shown here. */
interface Shown {
  readonly deployment: string | null;
  readonly running: string | null;
  readonly waiting: string | null;
  readonly workers: readonly ShownWorker[];
}

interface ShownWorker {
  readonly url: string;
  readonly state: string;
  readonly snapshot: string | null;
  readonly stage: string;
  readonly error: string | null;
}

/** In their order. */
const stages: readonly string[] = ['gate', 'drain', 'pause', 'load', 'label', 'resume', 'done'];

const LOOK_EVERY_MS = 500;
const TIMEOUT_MS = 10_000;

/** Signals a snapshot to a running router; with `--watch` follows the swap. @returns the exit code: 1 if an engine has not got it */
export async function swap(identity: string, flags: SwapFlags, write: (line: string) => void): Promise<number> {
  const { deployment, path, transition, resetPromptCache: reset_prompt_cache } = flags;
  const body = JSON.stringify({ identity, deployment, path, transition, reset_prompt_cache });
  const { state } = await ask<{ state: string }>(flags, { method: 'POST', body });
  write(`${identity}: ${state}`);
  if (flags.watch !== true) return 0;
  let now: Shown = { deployment: null, running: null, waiting: null, workers: [] };
  const progress = showProgress(() => Object.fromEntries(now.workers.map((each) => [each.url, stepOf(each)])));
  try {
    for (;;) {
      const { deployments } = await ask<{ deployments: Shown[] }>(flags, {});
      now = deployments.find((each) => deployment === undefined || each.deployment === deployment)!;
      if (now.running === null && now.waiting === null) break;
      await delay(LOOK_EVERY_MS);
    }
  } finally {
    progress.stop();
  }
  for (const each of now.workers) write(`${each.url}  ${stepOf(each).text}`);
  return now.workers.every(({ snapshot }) => snapshot === identity) ? 0 : 1;
}

const stepOf = ({ state, stage, snapshot, error }: ShownWorker): Step => ({
  done: Math.max(0, stages.indexOf(stage)),
  total: stages.length - 1,
  text: `${state}  ${stage}  ${snapshot ?? 'unknown'}${error === null ? '' : `  ${error}`}`,
});

async function ask<T>({ url, apiKey }: SwapFlags, init: RequestInit): Promise<T> {
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  let response: Response;
  try {
    response = await fetch(new URL('/swap', url), { ...init, headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    throw new ConfigError(`${url} does not answer: ${(error as Error).message}`);
  }
  if (response.ok) return (await response.json()) as T;
  const { error } = (await response.json().catch(() => ({}))) as { error?: unknown };
  const hint = response.status === 401 || response.status === 403 ? ' Give an admin key with --api-key.' : '';
  throw new ConfigError(`${url}/swap answered ${response.status}: ${JSON.stringify(error)}${hint}`);
}
