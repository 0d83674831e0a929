import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type BatchShape, type BatchTurn, batchCost, runAgentBatch } from '../../router/src/batch/agent-batch.ts';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { type Fleet, startFleet } from './fleet.ts';

const shape: BatchShape = { sessions: 16, groupSize: 4, turns: 2, promptWords: 100, turnWords: 20, maxTokens: 120 };
/** A response takes three seconds: time to kill its engine while it streams. */
const STEP_MS = 25;
/** The engine is killed once so many of its responses have so many bytes. */
const STREAMS = 2;
const STREAM_BYTES = 2_000;
const LOOK_MS = 20;

interface Listed {
  readonly worker: string | null;
  readonly bytes_sent: number;
}
/** The fields of a trajectory in the JSONL export that are shown here. */
interface Exported {
  readonly session: string;
  readonly turns: readonly {
    readonly index: number;
    readonly worker: string;
    readonly seams: readonly { readonly at: number; readonly worker: string }[];
  }[];
}

/**
 * A batch of captured chats with `--resume`, during which an engine is killed in the middle of its streams.
 * @returns what was not as it must be
 */
export async function showSurvival(say: (line: string) => void): Promise<string[]> {
  const tokenizerPath = mkdtempSync(join(tmpdir(), 'turnout-demo-'));
  writeTokenizer(tokenizerPath);
  // The prompts of captured chats are token ids, which vLLM takes for a chat, so that a chat can continue on another engine.
  const engine = { kind: 'vllm', meanOutputTokens: 0, stepBaseMs: STEP_MS } as const;
  const options = { resume: 'on', captureChat: true, tokenizerPath, healthCheckIntervalSecs: 1 } as const;
  const fleet = await startFleet(engine, options);
  try {
    return await runWithKill(fleet, say);
  } finally {
    await fleet.stop();
    rmSync(tokenizerPath, { recursive: true });
  }
}

async function runWithKill({ router: { url }, engines }: Fleet, say: (line: string) => void): Promise<string[]> {
  const turns: BatchTurn[] = [];
  let isDone = false;
  const batch = runAgentBatch({
    ...shape,
    url,
    model: 'sim',
    seed: 1,
    onTurn: (turn) => void turns.push(turn),
  }).finally(() => (isDone = true));
  let victim: string | null = null;
  while (victim === null && !isDone) {
    await delay(LOOK_MS);
    victim = streamingWorker(
      ((await (await fetch(`${url}/requests?phase=streaming`)).json()) as { requests: Listed[] }).requests,
    );
  }
  await engines.find((each) => each.url === victim)?.kill('SIGKILL');
  if (victim !== null) say(`engine ${victim} was killed with SIGKILL while responses streamed from it`);
  await batch;
  const resumed = await resumedCount(url);
  const expected = batchCost(shape).turns;
  const sentAgain = turns.filter(({ attempts }) => attempts > 1).length;
  const whole = turns.filter(({ answer }) => answer?.outputTokens === shape.maxTokens).length;
  say(`${resumed} of its streams continued on another engine, ${sentAgain} turns were sent again by their client,`);
  say(`${whole} of ${expected} turns were answered with all of their ${shape.maxTokens} tokens.`);
  const seam = await firstSeam(url);
  if (seam !== null) say(seam);
  return [
    ...(resumed === 0 ? ['no stream continued on another engine'] : []),
    ...(sentAgain === 0 ? [] : [`${sentAgain} turns were sent again`]),
    ...(whole === expected && turns.length === expected ? [] : [`${whole} of ${expected} turns were whole`]),
    ...(seam === null ? ['no recorded turn was sampled by two engines'] : []),
  ];
}

/** A worker in the middle of several responses; null: none is. */
function streamingWorker(requests: readonly Listed[]): string | null {
  const counts = Map.groupBy(
    requests.filter(({ bytes_sent: bytes }) => bytes >= STREAM_BYTES),
    ({ worker }) => worker,
  );
  for (const [worker, of] of counts) if (of.length >= STREAMS) return worker;
  return null;
}

async function resumedCount(url: string): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const counts = [...metrics.matchAll(/^turnout_resumes_total\{[^}]*\} (\d+)/gm)];
  return counts.reduce((sum, [, count]) => sum + Number(count), 0);
}

/** One of the recorded turns that two engines sampled. */
async function firstSeam(url: string): Promise<string | null> {
  const lines = (await (await fetch(`${url}/trajectories?format=jsonl`)).text()).trim().split('\n');
  for (const { session, turns } of lines.map((line) => JSON.parse(line) as Exported)) {
    for (const { index, worker, seams } of turns) {
      const [seam] = seams;
      if (seam !== undefined)
        return `For example ${session}, turn ${index + 1}: sampled up to position ${seam.at} by ${seam.worker}, from there on by ${worker}.`;
    }
  }
  return null;
}
