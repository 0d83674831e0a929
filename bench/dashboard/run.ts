// CPU time that the dashboard takes of the router, with and without readers; writes bench/dashboard/report.md.
import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { machine } from '../machine.ts';
import { median } from '../median.ts';
import { cpuMicroseconds, readCpu } from '../proc.ts';
import { type StartedRouter, startNode, startRouter } from '../router.ts';

const ROUNDS = Number(process.argv[2] ?? 7);
const WINDOW_MS = Number(process.argv[3] ?? 15_000);
const PER_MINUTE = 10_000;
const EVERY_MS = 60_000 / PER_MINUTE;
/** From the change of readers to the measurement: the first state of a page is not part of what it takes a second. */
const SETTLE_MS = 3_000;

const scales = [
  { workers: 8, sessions: 256 },
  { workers: 500, sessions: 10_000 },
];

type Setup = 'off' | 'closed' | 'dashboard' | 'dashboard and tap';
const setups: readonly Setup[] = ['off', 'closed', 'dashboard', 'dashboard and tap'];

const children: ChildProcess[] = [];
const agent = new Agent({ keepAlive: true, maxSockets: 64 });

async function startEngine(): Promise<number> {
  const { child, found } = await startNode([join(import.meta.dirname, 'engine.ts')], /(\d+)\n/);
  children.push(child);
  return Number(found);
}

async function startOwn(engine: number, workers: number, dashboard: 'on' | 'off'): Promise<StartedRouter> {
  const urls = `http://127.0.0.1:${engine}@0-${workers - 1}`;
  const options = ['--policy', 'rollout', '--disable-health-check', '--dashboard', dashboard, '--worker-urls', urls];
  const router = await startRouter(options);
  children.push(router.child);
  return router;
}

const prompt = 'Solve this step by step. '.repeat(80);

function ask(url: string, session: number): Promise<void> {
  const headers = {
    'x-session-id': `s${session}`,
    'x-turnout-group': `g${session >> 2}`,
    'content-type': 'application/json',
  };
  return new Promise((resolve, reject) => {
    request(`${url}/v1/completions`, { method: 'POST', agent, headers }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`the router answered ${response.statusCode}`));
      response.resume().on('end', () => resolve());
    })
      .on('error', reject)
      .end(JSON.stringify({ model: 'm', prompt }));
  });
}

/** 10,000 exchanges a minute for the time of the window, whatever they take. */
async function load(url: string, sessions: number, ms: number): Promise<number> {
  const startMs = performance.now();
  const asked: Promise<void>[] = [];
  while (performance.now() - startMs < ms) {
    const due = Math.floor((performance.now() - startMs) / EVERY_MS);
    while (asked.length < due) asked.push(ask(url, (asked.length * 7) % sessions));
    await sleep(2);
  }
  await Promise.all(asked);
  return asked.length;
}

/** Reads a stream of events as a page does, until aborted. @returns bytes so far */
function read(url: string, signal: AbortSignal): () => number {
  let bytes = 0;
  const follow = async (): Promise<void> => {
    const response = await fetch(url, { signal });
    if (!response.ok) throw new Error(`${url} answered ${response.status}`);
    for await (const part of response.body!) bytes += part.length;
  };
  follow().catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
  return () => bytes;
}

/** @returns CPU milliseconds of the router per second, and KB of events per second */
async function measure(
  { child, url }: StartedRouter,
  sessions: number,
  setup: Setup,
): Promise<{ cpu: number; kb: number }> {
  const ender = new AbortController();
  const paths =
    setup === 'dashboard' ? ['/dashboard/feed'] : setup === 'dashboard and tap' ? ['/dashboard/feed', '/tap'] : [];
  const readers = paths.map((path) => read(url + path, ender.signal));
  const bytes = (): number => readers.reduce((sum, each) => sum + each(), 0);
  await load(url, sessions, SETTLE_MS);
  const [before, bytesBefore, startMs] = [readCpu([child.pid!]), bytes(), performance.now()];
  await load(url, sessions, WINDOW_MS);
  const secs = (performance.now() - startMs) / 1_000;
  const cpu = cpuMicroseconds(before, readCpu([child.pid!])) / 1_000 / secs;
  const kb = (bytes() - bytesBefore) / 1_000 / secs;
  ender.abort();
  return { cpu, kb };
}

const lines: string[] = [];
try {
  for (const { workers, sessions } of scales) {
    const engine = await startEngine();
    const off = await startOwn(engine, workers, 'off');
    const on = await startOwn(engine, workers, 'on');
    for (const { url } of [off, on]) {
      // Every session has had a turn, and the code is compiled.
      for (let at = 0; at < sessions; at += 64)
        await Promise.all(Array.from({ length: Math.min(64, sessions - at) }, (_, i) => ask(url, at + i)));
      await load(url, sessions, SETTLE_MS);
    }
    const results = new Map<Setup, { cpu: number[]; kb: number[] }>(
      setups.map((setup) => [setup, { cpu: [], kb: [] }]),
    );
    for (let round = 0; round < ROUNDS; round++) {
      for (const setup of setups) {
        const { cpu, kb } = await measure(setup === 'off' ? off : on, sessions, setup);
        results.get(setup)!.cpu.push(cpu);
        results.get(setup)!.kb.push(kb);
      }
    }
    const base = median(results.get('closed')!.cpu);
    for (const [setup, { cpu, kb }] of results) {
      const ms = median(cpu);
      const added = setup === 'closed' ? '' : ((ms - base) / 10).toFixed(2);
      const least = Math.min(...cpu).toFixed(1);
      const most = Math.max(...cpu).toFixed(1);
      lines.push(
        `| ${workers} | ${sessions} | ${setup} | ${ms.toFixed(1)} (${least} to ${most}) | ${added} | ${median(kb).toFixed(0)} |`,
      );
      process.stdout.write(`${lines.at(-1)}\n`);
    }
    for (const child of children.splice(0)) child.kill('SIGKILL');
  }
} finally {
  for (const child of children) child.kill('SIGKILL');
}
agent.destroy();

writeFileSync(
  join(import.meta.dirname, 'report.md'),
  `# What the dashboard takes of the router

CPU time of the router's process (all threads) at ${PER_MINUTE.toLocaleString('en-US')} exchanges a minute with session keys and 2 KB prompts, policy \`rollout\`:
medians of ${ROUNDS} windows of ${WINDOW_MS / 1_000} s in turn (least to most). "off" is \`--dashboard off\`, "closed" the default without a page that is open,
"dashboard" one reader of \`/dashboard/feed\`, and "tap" one of \`/tap\` beside it. The limit is 5 % of one core.
"off" is a process of its own: what it differs by from "closed" is the noise between two processes. ${machine()}

| workers | sessions | setup | CPU ms per second | more than closed, % of one core | events, KB per second |
| --- | --- | --- | --- | --- | --- |
${lines.join('\n')}

Run it: \`npm run bench -- dashboard\`.
`,
);
