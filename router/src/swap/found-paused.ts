import { askJson } from '../engines/ask.ts';
import { engines } from '../engines/engines.ts';
import { weightCalls } from '../engines/weights.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Logger } from '../observe/log.ts';
import type { SwapEngine } from './engine.ts';

interface FoundPaused {
  /** The command that resumes it. */
  readonly command: string;
  /** For an operator. */
  readonly why: string;
}

/** @returns null: the engine is not paused, as far as it reports */
async function foundPaused({ kind, url, worker }: SwapEngine, timeoutMs: number): Promise<FoundPaused | null> {
  const calls = kind === null ? null : weightCalls[kind];
  if (calls === null) return null;
  const ask = worker.asker(timeoutMs);
  const { isPaused, mayBePaused } = await engines[kind!].readSigns(ask);
  if (isPaused !== true) {
    // SGLang (0.5.23) reports no pause, but its /health generates a token. vLLM reports one unless it does not answer at all.
    if (!mayBePaused || kind !== 'sglang') return null;
    const health = await ask('/health').catch(() => null);
    if (health?.status === 200) return null;
  }
  const isAsleep = kind === 'vllm' && (await askJson(ask, '/is_sleeping'))?.['is_sleeping'] === true;
  const path = isAsleep ? '/wake_up' : calls.resume.path;
  const command = `curl -X POST ${url}${path} -H 'content-type: application/json' -d '{}'`;
  const found = isPaused === true ? 'was found paused' : 'fails /health and may be paused';
  const why = `the engine ${found}, by no swap of this router: if its weights are complete, resume it with ${command}; else load weights with POST /swap`;
  return { command, why };
}

/** How often it is asked whether it still is. */
const LOOK_MS = 1_000;

interface Parts {
  readonly fleet: Fleet;
  readonly log: Logger;
  readonly timeoutMs: () => number;
}

/**
 * An engine that joins may be paused although no swap of this router is at work there: by an earlier router, or by a trainer. Only they or an
 * operator know whether its weights are complete, so it is resumed by them or by a swap.
 *
 * @returns whether it was paused; then it is resumed now, or a swap was at work there
 */
export async function untilResumed(
  engine: SwapEngine,
  { fleet, log, timeoutMs }: Parts,
  pause: (ms: number) => Promise<void>,
): Promise<boolean> {
  const found = await foundPaused(engine, timeoutMs());
  if (found === null) return false;
  const setPaused = (why: string | null): void => {
    engine.pausedBecause = why;
    for (const worker of engine.ranks) fleet.setReason(worker, 'paused', why !== null);
  };
  engine.snapshot = null;
  setPaused(found.why);
  log.error({ worker: engine.url, resume: found.command, detail: found.why }, 'engine found paused');
  const isBroughtIn = (): boolean => engine.isBusy || engine.phase !== 'registered';
  do await pause(LOOK_MS);
  while (!isBroughtIn() && (await foundPaused(engine, timeoutMs())) !== null);
  setPaused(null);
  if (engine.swap?.isRunning === true) await engine.swap.over;
  return true;
}
