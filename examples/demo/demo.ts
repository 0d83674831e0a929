import { createWriteStream, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Plugin, type Router, loadConfig, startRouter } from '../../router/src/index.ts';
import { openLog } from '../../router/src/observe/log.ts';
import { type SpawnedSimEngine, spawnSimEngine } from '../../router/src/sim/spawn.ts';
import { type Turn, runBatch, turnsPerBatch } from './rollout.ts';

/** The main job, end to end: rollouts through the router to four simulated engines, once per policy. */

const { values: flags } = parseArgs({
  options: {
    keep: { type: 'boolean', default: false },
    engines: { type: 'string', default: '4' },
    samples: { type: 'string', default: '4' },
    'time-scale': { type: 'string', default: '0.5' },
  },
});
const engineCount = Number(flags.engines);
const samplesPerPrompt = Number(flags.samples);
const repository = join(import.meta.dirname, '../..');
const output = join(repository, 'out', 'trajectories.jsonl');

interface Run {
  readonly title: string;
  readonly policy: string;
  /** After this share of the turns one engine is killed; 0: none. */
  readonly killAfter: number;
}

const runs: readonly Run[] = [
  { title: 'least_inflight', policy: 'least_inflight', killAfter: 0 },
  { title: 'consistent_hash', policy: 'consistent_hash', killAfter: 0 },
  { title: 'rollout', policy: 'rollout', killAfter: 0 },
  { title: 'rollout, an engine dies', policy: 'rollout', killAfter: 0.4 },
];

interface Result {
  readonly run: Run;
  readonly seconds: number;
  readonly turns: readonly Turn[];
  readonly failed: number;
  readonly awayFromHome: number;
}

async function start(policy: string, plugins: readonly Plugin[], kind: 'sglang' | 'vllm', port = 0) {
  const settings = {
    kind,
    timeScale: Number(flags['time-scale']),
    meanOutputTokens: 80,
    kvTokens: 60_000,
  };
  const engines = await Promise.all(Array.from({ length: engineCount }, () => spawnSimEngine(settings)));
  const workerUrls = engines.map(({ url }) => url);
  const config = loadConfig({ port, prometheusPort: 0, policy, workerUrls, healthCheckIntervalSecs: 1 }, {}, undefined);
  return { engines, router: await startRouter(config, { plugins, log: openLog('critical').logger }) };
}

async function stop(router: Router, engines: readonly SpawnedSimEngine[]): Promise<void> {
  await router.close();
  await Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
}

async function measure(run: Run, progress: (done: number) => void): Promise<Result> {
  // A plugin sees every exchange end, and which worker had it: what a request can't tell its client.
  const workerOf = new Map<string, string>();
  const recorder: Plugin = {
    name: 'demo-recorder',
    finished: (x) => void workerOf.set(x.head.requestId, x.worker?.url ?? ''),
  };
  const { router, engines } = await start(run.policy, [recorder], 'vllm');
  const total = turnsPerBatch(samplesPerPrompt);
  const turns: Turn[] = [];
  let failed = 0;
  let isKilled = false;
  const startMs = performance.now();
  await runBatch({
    baseUrl: router.url,
    samplesPerPrompt,
    maxTokens: 160,
    onTurn: (turn) => {
      turns.push(turn);
      progress(turns.length / total);
      if (run.killAfter > 0 && !isKilled && turns.length >= total * run.killAfter) {
        isKilled = true;
        void engines[1]!.kill('SIGKILL');
      }
    },
    onFailed: () => failed++,
  });
  const seconds = (performance.now() - startMs) / 1000;
  const homes = new Map<string, string>();
  let awayFromHome = 0;
  for (const turn of turns) {
    const worker = workerOf.get(turn.requestId) ?? '';
    const home = homes.get(turn.session);
    if (home === undefined) homes.set(turn.session, worker);
    else if (home !== worker) awayFromHome++;
    trajectories.write(`${JSON.stringify({ run: run.title, worker, ...turn })}\n`);
  }
  await stop(router, engines);
  return { run, seconds, turns, failed, awayFromHome };
}

function showProgress(title: string, share: number): void {
  if (!process.stderr.isTTY) return;
  const filled = Math.round(share * 30);
  process.stderr.write(
    `\r  ${title.padEnd(32)} ${'█'.repeat(filled)}${'·'.repeat(30 - filled)} ${Math.round(share * 100)} %  `,
  );
}

function table(results: readonly Result[]): string {
  const sum = (turns: readonly Turn[], key: 'promptTokens' | 'cachedTokens') =>
    turns.reduce((n, turn) => n + turn[key], 0);
  const rows = results.map(({ run, seconds, turns, failed, awayFromHome }) => [
    run.title,
    `${seconds.toFixed(1)} s`,
    `${((100 * sum(turns, 'cachedTokens')) / sum(turns, 'promptTokens')).toFixed(1)} %`,
    String(turns.length),
    String(failed),
    String(turns.filter(({ attempts }) => attempts > 1).length),
    String(awayFromHome),
  ]);
  const head = ['policy', 'wall time', 'cache hits', 'turns', 'failed', 'asked again', 'off their engine'];
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]!.length)));
  const line = (cells: readonly string[]) =>
    cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('   ');
  return [line(head), line(widths.map((width) => '─'.repeat(width))), ...rows.map(line)].join('\n');
}

mkdirSync(join(repository, 'out'), { recursive: true });
const trajectories = createWriteStream(output);
process.stdout.write(
  `turnout demo: ${turnsPerBatch(samplesPerPrompt)} turns a run (8 prompts × ${samplesPerPrompt} samples × 3 turns), ` +
    `${engineCount} SIMULATED engines, real sockets, a real OpenAI client.\n`,
);
const results: Result[] = [];
for (const run of runs) {
  results.push(await measure(run, (share) => showProgress(run.title, share)));
  if (!process.stderr.isTTY) process.stderr.write(`  ${run.title}: done\n`);
}
await new Promise((resolve) => trajectories.end(resolve));
if (process.stderr.isTTY) process.stderr.write(`\r${' '.repeat(80)}\r`);
process.stdout.write(`\n${table(results)}\n
cache hits: prompt tokens that the engine found in its prefix cache. asked again: turns whose engine died while it
answered, sent again by the client. off their engine: later turns that another engine served than the first one.
Every turn with its token ids: out/trajectories.jsonl

`);

if (flags.keep) {
  const { router, engines } = await start('consistent_hash', [], 'sglang', 30_000);
  process.stdout.write(`Still serving on ${router.url} (Ctrl-C stops it). Try:
  curl ${router.url}/workers
  curl ${router.url}/v1/chat/completions -H 'content-type: application/json' -H 'x-session-id: me' \\
    -d '{"model":"sim","messages":[{"role":"user","content":"What is 12 * 17?"}],"max_tokens":20,"stream":true}'
  curl ${router.url}/generate -H 'content-type: application/json' \\
    -d '{"text":"What is 12 * 17?","sampling_params":{"max_new_tokens":20},"return_logprob":true}'
  curl ${router.url}/metrics
`);
  process.once('SIGINT', () => void stop(router, engines));
} else {
  process.stdout.write(`Next:
  npm run demo -- --keep                                      keep it running and try it with curl
  npm run turnout -- sim --workers 4                          simulated engines of your own
  npm run turnout -- serve --worker-urls http://host:port …   route to real engines
  npm run turnout -- doctor --worker-urls http://host:port …  see what they lack
`);
}
process.exitCode = results.every(({ failed }) => failed === 0) ? 0 : 1;
