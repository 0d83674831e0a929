import { openLog } from '../../router/src/observe/log.ts';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type SpawnedSimEngine, spawnSimEngine } from '../../router/src/sim/spawn.ts';
import { type Config, type Router, loadConfig, startRouter } from '../../router/src/index.ts';
import { type BatchTurn, batchCost, runAgentBatch } from '../../router/src/batch/agent-batch.ts';
import { type BatchResult, movedSessions, resultTable } from '../../router/src/batch/batch-result.ts';
import { type Step, showProgress } from '../../router/src/cli/progress.ts';
import { writeTokenizer } from '../../router/src/sim/tokens/tokenizer-files.ts';
import { showExactness } from './exactness.ts';
import { ANSWER_TOKENS, ENGINES, KV_TOKENS, policies, shape as demoShape } from './shape.ts';

/**
 * Three demonstrations in a minute, on four SIMULATED engines: what the rollout policy gains if contexts exceed the KV
 * cache, what happens when an engine is killed, and which token ids reach training.
 */

const { values: flags } = parseArgs({
  options: {
    /** Keeps the engines and the router of the rollout policy running. */
    keep: { type: 'boolean', default: false },
    /** With --keep: serves at once, without the batches. */
    'skip-runs': { type: 'boolean', default: false },
    port: { type: 'string', default: '0' },
    sessions: { type: 'string', default: String(demoShape.sessions) },
    /** Wall time per simulated time. */
    'time-scale': { type: 'string', default: '0.5' },
  },
});

const shape = { ...demoShape, sessions: Number(flags.sessions) };
const say = (text: string): void => void process.stdout.write(`${text}\n`);

interface Fleet {
  readonly router: Router;
  readonly engines: readonly SpawnedSimEngine[];
  stop(): Promise<void>;
}

async function startFleet(policy: string, port = 0, more: object = {}): Promise<Fleet> {
  const timeScale = Number(flags['time-scale']);
  // The prompts of captured chats are token ids, which vLLM takes for a chat, so that a chat can continue on another engine.
  const kind = 'captureChat' in more ? 'vllm' : 'sglang';
  const settings = { kind, timeScale, meanOutputTokens: ANSWER_TOKENS, kvTokens: KV_TOKENS } as const;
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => spawnSimEngine(settings)));
  const stopEngines = () => Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
  const workerUrls = engines.map(({ url }) => url);
  const options = {
    port,
    prometheusPort: 0,
    policy,
    workerUrls,
    workerHeader: true,
    healthCheckIntervalSecs: 1,
    ...more,
  };
  const config: Config = loadConfig(options, {}, undefined);
  const router = await startRouter(config, { log: openLog('critical').logger }).catch(async (error: unknown) => {
    await stopEngines();
    throw error;
  });
  // Until its first health check an engine's kind is not known.
  while (router.fleet.workers.some(({ engine }) => engine === null)) await delay(10);
  const stop = async (): Promise<void> => {
    await router.close();
    await stopEngines();
  };
  return { router, engines, stop };
}

async function runBatch(
  fleet: Fleet,
  title: string,
  onTurn: (turn: BatchTurn, done: number) => void,
): Promise<BatchResult> {
  const turns: BatchTurn[] = [];
  const startMs = performance.now();
  await runAgentBatch({
    ...shape,
    url: fleet.router.url,
    model: 'sim',
    seed: 1,
    onTurn: (turn) => onTurn(turn, turns.push(turn)),
  });
  return { title, seconds: (performance.now() - startMs) / 1000, turns };
}

const { turns: allTurns } = batchCost(shape);
const WIDTH = Math.max(...policies.map(({ length }) => length));

async function compare(): Promise<readonly BatchResult[]> {
  say(
    `1. The same batch under each policy: ${shape.sessions} sessions, ${allTurns} turns, contexts that outgrow the KV cache`,
  );
  const results: BatchResult[] = [];
  const turns = new Map(policies.map((policy) => [policy, 0]));
  const stepOf = (policy: string, done: number): [string, Step] => {
    const seconds = results.find(({ title }) => title === policy)?.seconds;
    const text = `${done} of ${allTurns} turns${seconds === undefined ? '' : ` in ${seconds.toFixed(1)} s`}`;
    return [`  ${policy.padEnd(WIDTH)}`, { done, total: allTurns, text }];
  };
  const progress = showProgress(() => Object.fromEntries(Array.from(turns, ([policy, done]) => stepOf(policy, done))));
  for (const policy of policies) {
    const fleet = await startFleet(policy);
    results.push(await runBatch(fleet, policy, (_, done) => turns.set(policy, done)));
    await fleet.stop();
  }
  progress.stop();
  say(resultTable(results));
  return results;
}

/** A batch with the rollout policy, during which an engine is killed. */
async function kill(): Promise<BatchResult> {
  say('\n2. The batch again under rollout with --resume on, and one engine is killed with SIGKILL');
  const tokenizerPath = mkdtempSync(join(tmpdir(), 'turnout-demo-'));
  writeTokenizer(tokenizerPath);
  const fleet = await startFleet('rollout', 0, { resume: 'on', captureChat: true, tokenizerPath });
  const [, victim] = fleet.engines;
  let killedAtMs = 0;
  const startMs = performance.now();
  const at = (): string => `${((performance.now() - startMs) / 1000).toFixed(1).padStart(6)} s`;
  const result = await runBatch(fleet, 'rollout', (turn, done) => {
    if (killedAtMs === 0 && done >= allTurns * 0.4) {
      killedAtMs = performance.now();
      void victim!.kill('SIGKILL');
      say(`${at()}  engine ${victim!.url} killed after ${done} turns`);
    }
    if (turn.attempts > 1)
      say(`${at()}  ${turn.session}: its stream was truncated, the client sent turn ${turn.index + 1} again`);
  });
  const metrics = await (await fetch(`${fleet.router.url}/metrics`)).text();
  const resumed = /^turnout_resumes_total\{cause="cut"\} (\d+)/m.exec(metrics)?.[1] ?? '0';
  await fleet.stop();
  rmSync(tokenizerPath, { recursive: true });
  const truncated = result.turns.filter(({ attempts }) => attempts > 1).length;
  const lost = result.turns.filter(({ answer }) => answer === null).length;
  const twice = result.turns.length - new Set(result.turns.map(({ session, index }) => `${session} ${index}`)).size;
  say(
    `${at()}  the batch is done: ${resumed} streams continued on another engine, ${truncated} truncated and sent again,`,
  );
  say(`          ${movedSessions(result)} sessions moved, ${lost} turns lost, ${twice} answered twice`);
  return result;
}

async function keep(): Promise<void> {
  const fleet = await startFleet('rollout', Number(flags.port));
  const { url } = fleet.router;
  say(`\nServing under the rollout policy on ${url} (Ctrl-C stops it). Which worker has a session, and why:
  curl -si ${url}/v1/chat/completions -H 'content-type: application/json' -H 'x-session-id: me' \\
    -d '{"model":"sim","messages":[{"role":"user","content":"Hello"}],"max_tokens":20}' | grep x-turnout
  curl -s ${url}/sessions
  curl -s ${url}/workers
  curl -s ${url}/metrics | grep turnout_session`);
  process.once('SIGINT', () => void fleet.stop());
  process.once('SIGTERM', () => void fleet.stop());
}

/** Checked before the batches, which take a minute: the port of --keep must be free. */
async function checkPort(port: number): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', () => reject(new Error(`--port ${port}: another process listens there`)));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve()));
  });
}

async function main(): Promise<number> {
  if (flags.keep && flags.port !== '0') await checkPort(Number(flags.port));
  say(`turnout demo: ${ENGINES} SIMULATED engines (made-up tokens, a model of time and memory), real sockets\n`);
  let failed = 0;
  if (!flags['skip-runs']) {
    const results = [...(await compare()), await kill()];
    failed = results.flatMap(({ turns }) => turns).filter(({ answer }) => answer === null).length;
    say('\n3. Token ids for training');
    await showExactness(say);
  }
  if (flags.keep) await keep();
  else {
    say(`\nNext:
  npm run demo -- --keep --skip-runs                    the same fleet to try with curl
  npx turnout bench --worker-urls http://host:port …    this comparison on your own engines
  npx turnout serve --worker-urls http://host:port …    route to them
  npx turnout doctor --worker-urls http://host:port …   see what they lack`);
  }
  return failed === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  say(`demo: ${(error as Error).message}`);
  return 1;
});
