import { randomInt } from 'node:crypto';
import { createInterface } from 'node:readline/promises';
import { pino } from 'pino';
import { type BatchShape, type BatchTurn, batchCost, runAgentBatch } from '../batch/agent-batch.ts';
import { type BatchResult, resultTable } from '../batch/batch-result.ts';
import { ConfigError, loadConfig } from '../config/load.ts';
import { splitList } from '../config/split-list.ts';
import { startRouter } from '../router.ts';
import { showProgress } from './progress.ts';

export interface BenchFlags {
  readonly workerUrls: readonly string[];
  readonly policies: string;
  readonly sessions: string;
  readonly turns: string;
  readonly groupSize: string;
  readonly promptWords: string;
  readonly turnWords: string;
  readonly maxTokens: string;
  readonly model?: string;
  readonly workerApiKey?: string;
  readonly yes?: true;
}

/** Sends a synthetic agent batch to the user's fleet, once per policy, and prints the results. */
export async function bench(flags: BenchFlags): Promise<number> {
  const workerUrls = splitList(flags.workerUrls);
  const policies = splitList([flags.policies]);
  if (policies.length === 0) throw new ConfigError('--policies: no policy is given');
  const shape: BatchShape = {
    sessions: whole('--sessions', flags.sessions),
    turns: whole('--turns', flags.turns),
    groupSize: whole('--group-size', flags.groupSize),
    promptWords: whole('--prompt-words', flags.promptWords),
    turnWords: whole('--turn-words', flags.turnWords),
    maxTokens: whole('--max-tokens', flags.maxTokens),
  };
  const { turns, promptTokens, outputTokens } = batchCost(shape);
  const about = (tokens: number): string => `about ${(tokens / 1e6).toFixed(2)} million`;
  process.stderr.write(
    `bench: ${policies.length} batches (${policies.join(', ')}) of ${shape.sessions} sessions, ${turns} turns each: ` +
      `${about(promptTokens * policies.length)} prompt tokens and up to ${about(outputTokens * policies.length).replace('about ', '')} output tokens in all.\n`,
  );
  if (flags.yes !== true && !(await confirmed())) throw new ConfigError('nothing was sent. --yes sends without asking');
  const results: BatchResult[] = [];
  const base = randomInt(1_000_000);
  for (const [i, policy] of policies.entries()) {
    // A new seed each time, so that a batch does not find its prompts in the engines' caches.
    results.push(await runPolicy(policy, base + i, turns, { flags, workerUrls, shape }));
  }
  process.stdout.write(`${resultTable(results)}\n`);
  return results.every((result) => result.turns.every(({ answer }) => answer !== null)) ? 0 : 1;
}

interface Run {
  readonly flags: BenchFlags;
  readonly workerUrls: readonly string[];
  readonly shape: BatchShape;
}

async function runPolicy(policy: string, seed: number, expected: number, run: Run): Promise<BatchResult> {
  const { flags, workerUrls, shape } = run;
  const { workerApiKey } = flags;
  const key = workerApiKey === undefined ? {} : { workerApiKey };
  const config = loadConfig(
    { port: 0, prometheusPort: 0, policy, workerUrls, workerHeader: true, ...key },
    {},
    undefined,
  );
  const router = await startRouter(config, { log: pino({ level: 'silent' }) }).catch((error: unknown) => {
    throw new ConfigError((error as Error).message);
  });
  const turns: BatchTurn[] = [];
  const progress = showProgress(() => {
    const text = `${turns.length} of about ${expected} turns`;
    return { [`bench: ${policy}`]: { done: turns.length, total: expected, text } };
  });
  try {
    const model = flags.model ?? (await modelOf(router.url));
    const startMs = performance.now();
    await runAgentBatch({ ...shape, url: router.url, model, seed, onTurn: (turn) => void turns.push(turn) });
    const failed = turns.find(({ answer }) => answer === null);
    if (failed !== undefined) progress.say(`bench: ${policy}: a turn failed: ${failed.error}`);
    return { title: policy, seconds: (performance.now() - startMs) / 1000, turns };
  } finally {
    progress.stop();
    await router.close();
  }
}

async function modelOf(url: string): Promise<string> {
  const answer = await fetch(`${url}/v1/models`);
  const list = (await answer.json().catch(() => ({}))) as {
    data?: readonly { id?: string }[];
    error?: { message?: string };
  };
  const id = list.data?.[0]?.id;
  if (id !== undefined) return id;
  const why = answer.ok
    ? 'no engine lists a model on /v1/models. Give --model'
    : `/v1/models answered ${answer.status}`;
  const { message } = list.error ?? {};
  throw new ConfigError(`--worker-urls: ${why}${message === undefined ? '' : `: ${message}`}`);
}

async function confirmed(): Promise<boolean> {
  if (!process.stdin.isTTY) return false;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question('Send it? [y/N] ')).trim());
  } finally {
    terminal.close();
  }
}

function whole(flag: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 1_000_000)
    throw new ConfigError(`${flag} ${text}: must be a whole number of at least 1`);
  return value;
}
