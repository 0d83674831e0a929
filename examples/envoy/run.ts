import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cpuMicroseconds, readCpu } from '../../bench/proc.ts';
import { type BatchShape, batchCost, runAgentBatch } from '../../router/src/batch/agent-batch.ts';
import { movedSessions, resultTable } from '../../router/src/batch/batch-result.ts';
import { Columns } from '../../router/src/cli/columns.ts';
import { binary, whyNotBuilt } from '../../router/test/harness/built.ts';
import { type SpawnedSimEngine, spawnSimEngine } from '../../simulator/src/spawn.ts';
import { type PlottedBatch, type TimedTurn, plotBatches } from './plot.ts';
import { startEnvoy, startPicker } from './stack.ts';

/**
 * A real Envoy in front of four simulated engines, with turnout as its endpoint picker: a batch of agents' sessions under each policy. Fails
 * if a request fails, is lost or reaches an engine twice, or if the sessions of `rollout` do not stay.
 */

const ENGINES = 4;
/** All engines together hold about half of the sessions' contexts. */
const KV_TOKENS = 40_000;
const shape: BatchShape = {
  sessions: 64,
  groupSize: 8,
  turns: 8,
  promptWords: 400,
  turnWords: 400,
  maxTokens: 60,
};
/** Least share of the turns of `rollout` that go where the turn of their session before went. */
const LEAST_STICKY = 0.9;

const { values: flags } = parseArgs({
  options: {
    /** Each gets a batch, with new engines. */
    policies: { type: 'string', default: 'rollout,least_inflight' },
    /** A binary of Envoy; without it 1.40 is installed, once, outside the checkout. */
    envoy: { type: 'string' },
    /** Seconds that the engines take for a second of the model. */
    'time-scale': { type: 'string', default: '0.5' },
    out: { type: 'string', default: 'out/envoy' },
  },
});

interface PolicyRun extends PlottedBatch {
  readonly seconds: number;
  readonly turns: readonly TimedTurn[];
  readonly envoyVersion: string;
  /** Requests that Envoy received, that it sent to engines, and that engines had. */
  readonly received: number;
  readonly sent: number;
  readonly served: number;
  /** µs a request. */
  readonly pickerUs: number;
  readonly envoyUs: number;
}

const say = (line: string): void => void process.stdout.write(`${line}\n`);

async function runPolicy(policy: string, program: string): Promise<PolicyRun> {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-envoy-'));
  const engines: SpawnedSimEngine[] = [];
  const stops: (() => Promise<void>)[] = [];
  try {
    for (let i = 0; i < ENGINES; i++)
      engines.push(await spawnSimEngine({ kind: 'vllm', timeScale: Number(flags['time-scale']), kvTokens: KV_TOKENS }));
    const workerUrls = engines.map(({ url }) => url);
    const picker = await startPicker(workerUrls, policy, folder);
    stops.push(() => picker.child.stop());
    const envoy = await startEnvoy({ program, picker: picker.grpcPort, folder });
    stops.push(() => envoy.child.stop());
    const cpu = () => [readCpu([picker.child.pid]), readCpu([envoy.child.pid])] as const;
    const [pickerBefore, envoyBefore] = cpu();
    const turns: TimedTurn[] = [];
    const startMs = performance.now();
    await runAgentBatch({
      ...shape,
      url: envoy.url,
      model: 'sim',
      seed: 1,
      onTurn: (turn) => {
        const endSeconds = (performance.now() - startMs) / 1000;
        turns.push({ ...turn, endSeconds, startSeconds: endSeconds - (turn.answer?.ms ?? 0) / 1000 });
      },
    });
    const seconds = (performance.now() - startMs) / 1000;
    const [pickerAfter, envoyAfter] = cpu();
    const stats = await Promise.all(engines.map((engine) => engine.stats()));
    return {
      title: policy,
      engines: workerUrls,
      seconds,
      turns,
      envoyVersion: envoy.version,
      received: await envoy.count('http.engines.downstream_rq_total'),
      sent: await envoy.count('cluster.engines.upstream_rq_total'),
      served: stats.reduce((sum, { requests }) => sum + requests, 0),
      pickerUs: cpuMicroseconds(pickerBefore, pickerAfter) / turns.length,
      envoyUs: cpuMicroseconds(envoyBefore, envoyAfter) / turns.length,
    };
  } finally {
    for (const stop of stops) await stop();
    await Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
    rmSync(folder, { recursive: true });
  }
}

/** The share of the turns, but the first of each session, that went where the turn before it went. */
function stickiness({ turns }: PolicyRun): number {
  const last = new Map<string, string>();
  let [stayed, all] = [0, 0];
  for (const { session, answer } of turns) {
    if (answer === null) continue;
    const before = last.get(session);
    if (before !== undefined) {
      all += 1;
      if (before === answer.worker) stayed += 1;
    }
    last.set(session, answer.worker);
  }
  return stayed / Math.max(1, all);
}

function table(runs: readonly PolicyRun[]): string {
  const head = ['policy', 'turns', 'at Envoy', 'to engines', 'at engines', 'sticky', 'picker', 'Envoy'];
  const rows = runs.map((run) => [
    run.title,
    String(run.turns.length),
    String(run.received),
    String(run.sent),
    String(run.served),
    `${(100 * stickiness(run)).toFixed(1)} %`,
    `${run.pickerUs.toFixed(0)} µs`,
    `${run.envoyUs.toFixed(0)} µs`,
  ]);
  const columns = new Columns(head, ...rows);
  return [head, ...rows].map((cells) => columns.line(cells)).join('\n');
}

/** @returns what is not as it must be */
function problemsOf(run: PolicyRun): string[] {
  const { title, turns, sent, served } = run;
  const failed = turns.filter(({ answer }) => answer === null).length;
  const again = turns.filter(({ attempts }) => attempts > 1).length;
  const expected = batchCost(shape).turns;
  return [
    ...(turns.length === expected ? [] : [`${title}: ${turns.length} of ${expected} turns were sent`]),
    ...(failed + again === 0 ? [] : [`${title}: ${failed} turns failed, ${again} were sent again`]),
    ...(sent === turns.length && served === turns.length
      ? []
      : [`${title}: ${turns.length} turns were ${sent} requests of Envoy and ${served} at the engines`]),
    ...(title !== 'rollout' || stickiness(run) >= LEAST_STICKY
      ? []
      : [`rollout: ${movedSessions(run)} sessions moved, more than one turn in ten`]),
  ];
}

async function main(): Promise<number> {
  const missing = flags.envoy === undefined ? await whyNotBuilt('envoy/install.sh', 'Envoy 1.40') : false;
  if (missing !== false) {
    const hint = 'With an Envoy of your own: npm run demo -- envoy --envoy PATH';
    process.stderr.write(`demo: ${missing}\n${hint}\n`);
    return 1;
  }
  const program = flags.envoy ?? binary('envoy', 'envoy');
  const { turns } = batchCost(shape);
  say(
    `turnout picker and a real Envoy before ${ENGINES} SIMULATED engines: ${shape.sessions} sessions, ${turns} turns for each policy`,
  );
  const runs: PolicyRun[] = [];
  for (const policy of flags.policies.split(',')) {
    process.stderr.write(`demo: ${policy} …\n`);
    runs.push(await runPolicy(policy, program));
  }
  say(
    `\nEnvoy ${runs[0]!.envoyVersion} with one thread. The CPU time for each request is that of processes just started:`,
  );
  say('npm run bench -- picker measures warm ones.\n');
  say(table(runs));
  say(`\n${resultTable(runs)}`);
  mkdirSync(flags.out, { recursive: true });
  const path = join(flags.out, 'batches.svg');
  writeFileSync(path, plotBatches(runs));
  say(`\nWhich engine served which turn, and the requests in flight: ${path}`);
  const problems = runs.flatMap(problemsOf);
  for (const problem of problems) say(`demo: NOT AS EXPECTED: ${problem}`);
  return problems.length === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`demo: ${(error as Error).message}\n`);
  return 1;
});
