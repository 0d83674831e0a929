import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '../../router/test/harness/free-port.ts';
import { type Engine, type EngineOptions, startSglang, startVllm } from '../../router/test/real/engines.ts';
import type { EngineKind } from '../../router/test/real/installed.ts';
import { startRouter } from '../../router/test/real/router.ts';
import { python, runOf, say } from './programs.ts';

export interface Training {
  readonly way: 'turnout' | 'baseline';
  readonly kind: EngineKind;
  /** Folder of the model to begin with. */
  readonly base: string;
  readonly seed: string;
  readonly steps: number;
  readonly groups: number;
  /** Where the facts go that the report reads. */
  readonly out: string;
}

const MEMBERS = 8;
/** Requests that run at the engine when it is killed. */
const KILLED_REQUESTS = 4;
const POLL_MS = 5;
/** Groups that may be begun: those of a step that trains, and those of the next one. */
const STEPS_AHEAD = 2;

interface Step {
  readonly step: number;
  readonly reward: number;
  readonly seconds: number;
}

interface Swap {
  readonly identity: string;
}

/** One training: engines, router, agent and trainer; the second engine is killed halfway. */
export async function train({ way, kind, base, seed, steps, groups, out }: Training): Promise<void> {
  const began = Date.now();
  const snapshots = join(out, 'snapshots');
  mkdirSync(snapshots);
  const start = kind === 'vllm' ? startVllm : startSglang;
  const ports = [await freePort(), await freePort()];
  const options = (port: number): EngineOptions => ({ folder: base, port });
  say(`starting two ${kind} engines, about a minute`);
  const engines: Engine[] = await Promise.all(ports.map((port) => start(options(port))));
  const urls = engines.map((engine) => engine.url);
  const feed = {
    groupSize: MEMBERS,
    stepGroups: groups,
    maxLag: STEPS_AHEAD - 1,
    whenFull: 'hold',
    needsReward: true,
  };
  const capture = ['--capture-chat', '--tokenizer-path', base, '--data-dir', join(out, 'data')];
  const update = ['--swap-snapshots', join(snapshots, '{identity}'), '--plugin', `feed:${JSON.stringify(feed)}`];
  const whole = ['--policy', 'rollout', '--resume', 'on', ...capture, ...update];
  const router = await startRouter(urls, way === 'turnout' ? whole : []);
  const swaps = new Map<string, Swap>();
  const append = (file: string, line: string): void => appendFileSync(join(out, file), `${line}\n`);
  const plain = ['--plain', '--retry', '--lead', String(STEPS_AHEAD * groups)];
  const problems = [String((steps + STEPS_AHEAD) * groups), '--size', String(MEMBERS), '--seed', seed];
  const streams = kind === 'vllm' ? ['--stream'] : [];
  const agent = python('rollouts.py', [router.url, ...problems, ...streams, ...(way === 'turnout' ? [] : plain)]);
  const amounts = [String(steps), String(groups), seed];
  const trainer =
    way === 'turnout'
      ? python('trainer.py', [router.url, base, snapshots, ...amounts])
      : python('baseline.py', [base, snapshots, ...amounts, ...urls]);
  /** Kills the second engine in the middle of its work, and starts it again. */
  const restart = async (): Promise<void> => {
    while ((await engines[1]!.running()) < KILLED_REQUESTS) {
      if (isOver) throw new Error('the training ended before requests ran at the engine that is killed');
      await delay(POLL_MS);
    }
    say(`killing the engine ${engines[1]!.url}`);
    await engines[1]!.kill();
    engines[1] = await start(options(ports[1]!));
    say('the engine has started again');
  };
  let isOver = false;
  let again: Promise<void> = Promise.resolve();
  const collected: Promise<void>[] = [];
  try {
    const played = runOf(agent, (line) => {
      append('sessions.jsonl', line);
      if (way === 'baseline') trainer.stdin.write(`${line}\n`);
    });
    const trained = runOf(trainer, (line) => {
      append('steps.jsonl', line);
      if (way === 'baseline') agent.stdin.write('\n'.repeat(groups));
      else collected.push(collect(router.url, swaps).catch(() => undefined)); // the next one has the same swaps

      const { step, reward, seconds } = JSON.parse(line) as Step;
      say(`step ${step} of ${steps}: reward ${reward.toFixed(2)}, ${seconds.toFixed(1)} s`);
      if (step !== Math.ceil(steps / 2)) return;
      again = restart();
      again.catch(() => undefined); // it is awaited at the end
    });
    // A failed request of the agent ends the run.
    await Promise.race([trained, played.then(() => trained)]);
    isOver = true;
    agent.kill('SIGTERM');
    await Promise.all([played, again, ...collected]);
    if (way === 'turnout') {
      await collect(router.url, swaps);
      writeFileSync(join(out, 'feed.json'), await (await fetch(`${router.url}/feed/stats`)).text());
    }
    writeFileSync(join(out, 'swaps.json'), JSON.stringify([...swaps.values()]));
    writeFileSync(join(out, 'metrics.txt'), await (await fetch(`${router.url}/metrics`)).text());
    writeFileSync(
      join(out, 'run.json'),
      JSON.stringify({ kind, seed, steps, groups, seconds: (Date.now() - began) / 1000 }),
    );
  } finally {
    await router.stop();
    await Promise.all(engines.map((engine) => engine.stop()));
  }
}

/** The router keeps the last ten swaps. */
async function collect(url: string, swaps: Map<string, Swap>): Promise<void> {
  const answer = (await (await fetch(`${url}/swap`)).json()) as { deployments: { swaps: Swap[] }[] };
  for (const swap of answer.deployments[0]!.swaps) swaps.set(swap.identity, swap);
}
