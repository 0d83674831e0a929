import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { ConfigError } from '../config/load.ts';
import { askRouter } from './ask-router.ts';
import { type Step, showProgress } from './progress.ts';

type TextFlag = 'deployment' | 'path' | 'transition' | 'resetPromptCache' | 'apiKey';

export interface SwapFlags extends Readonly<Partial<Record<TextFlag, string>>> {
  readonly url: string;
  readonly watch?: boolean;
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

const signalShape = z.looseObject({ state: z.string() });
const text = z.string().nullable();
const listShape = z.looseObject({
  deployments: z.array(
    z.looseObject({
      deployment: text,
      running: text,
      waiting: text,
      workers: z.array(
        z.looseObject({ url: z.string(), state: z.string(), snapshot: text, stage: z.string(), error: text }),
      ),
    }),
  ),
});

/** In their order. */
const stages: readonly string[] = ['gate', 'drain', 'pause', 'load', 'label', 'resume', 'done'];

const LOOK_EVERY_MS = 500;

/** Signals a snapshot to a running router; with `--watch` follows the swap. @returns the exit code: 1 if an engine has not got it */
export async function swap(identity: string, flags: SwapFlags, write: (line: string) => void): Promise<number> {
  const { deployment, path, transition, resetPromptCache: reset_prompt_cache } = flags;
  const ask = <T>(shape: z.ZodType, json?: object): Promise<T> =>
    askRouter<T>(shape, flags.url, '/swap', flags.apiKey, json);
  const order = { identity, deployment, path, transition, reset_prompt_cache };
  const { state } = await ask<{ state: string }>(signalShape, order);
  write(`${identity}: ${state}`);
  if (flags.watch !== true) return 0;
  let now: Shown = { deployment: null, running: null, waiting: null, workers: [] };
  const progress = showProgress(() => Object.fromEntries(now.workers.map((each) => [each.url, stepOf(each)])));
  try {
    for (;;) {
      const { deployments } = await ask<{ deployments: Shown[] }>(listShape);
      const found = deployments.find((each) => deployment === undefined || each.deployment === deployment);
      if (found === undefined)
        throw new ConfigError(`${flags.url}/swap lists no deployment ${deployment ?? ''}`.trimEnd());
      now = found;
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
