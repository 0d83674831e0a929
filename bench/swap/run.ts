// What the router adds to the time that an engine is closed for a weight swap; writes bench/swap/report.md.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadConfig } from '../../router/src/config/load.ts';
import { ask } from '../../router/src/engines/ask.ts';
import { weightCalls } from '../../router/src/engines/weights.ts';
import { startRouter } from '../../router/src/router.ts';
import { spawnSimEngine } from '../../simulator/src/spawn.ts';
import { machine } from '../machine.ts';

const SWAPS = Number(process.argv[2] ?? 60);
const LOAD_MS = 50;
const STREAMS = 32;

/** The lower quartile: other work on the machine makes some swaps longer, never shorter. */
const quartile = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 4)]!;

interface Swap {
  readonly identity: string;
  readonly ended_at: string | null;
  readonly engines: readonly { readonly phases_ms: Readonly<Record<string, number>> }[];
}

/** From the closing of the gate to its opening. */
async function throughRouter(url: string, identity: string): Promise<number> {
  await fetch(`${url}/swap`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ identity }),
  });
  for (;;) {
    // Not while the swap runs: the question takes the router's time.
    await new Promise((resolve) => setTimeout(resolve, 4 * LOAD_MS));
    const { deployments } = (await (await fetch(`${url}/swap`)).json()) as { deployments: [{ swaps: Swap[] }] };
    const swap = deployments[0].swaps.find((each) => each.identity === identity);
    if (swap?.ended_at != null) return Object.values(swap.engines[0]!.phases_ms).reduce((sum, ms) => sum + ms, 0);
  }
}

/** Pause, load and resume, and the label where it is a call of its own: nothing else. */
async function byHand(url: string, kind: 'vllm' | 'sglang', identity: string): Promise<number> {
  const { hostname: host, port } = new URL(url);
  const calls = weightCalls[kind]!;
  const label = calls.labelsWithLoad ? [] : [calls.label(identity)];
  const beganMs = performance.now();
  for (const { path, json } of [calls.pause(false), calls.load(`/w/${identity}`, identity), ...label, calls.resume])
    await ask({ host, port: Number(port), tls: null, isTls: false, lookup: null }, path, 30_000, {
      method: 'POST',
      host,
      json,
    });
  return performance.now() - beganMs;
}

const lines: string[] = [];
for (const kind of ['vllm', 'sglang'] as const) {
  for (const streams of [0, STREAMS]) {
    const [own, bare] = await Promise.all(
      [0, 1].map(() => spawnSimEngine({ kind, weightLoadMs: LOAD_MS, maxModelTokens: 1_000_000, kvTokens: 8_000_000 })),
    );
    const options = {
      port: 0,
      prometheusPort: 0,
      workerUrls: [own!.url],
      swapSnapshots: '/w/{identity}',
      logLevel: 'error',
    };
    const router = await startRouter(loadConfig(options, {}, undefined));
    while (router.fleet.eligible.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    const ender = new AbortController();
    const body = JSON.stringify({ prompt: 'go on', max_tokens: 100_000, ignore_eos: true, stream: true });
    for (let i = 0; i < streams; i++) {
      for (const url of [router.url, bare!.url]) {
        void fetch(`${url}/v1/completions`, { method: 'POST', body, signal: ender.signal })
          .then(async (answer) => {
            for await (const _ of answer.body!);
          })
          .catch(() => {});
      }
    }
    const withRouter: number[] = [];
    const without: number[] = [];
    for (let i = 0; i < SWAPS; i++) {
      withRouter.push(await throughRouter(router.url, `s${i}`));
      without.push(await byHand(bare!.url, kind, `s${i}`));
    }
    ender.abort();
    await router.close(0);
    await Promise.all([own!.kill(), bare!.kill()]);
    const [a, b] = [quartile(withRouter), quartile(without)];
    lines.push(`| ${kind} | ${streams} | ${b.toFixed(2)} | ${a.toFixed(2)} | ${(a - b).toFixed(2)} |`);
    process.stdout.write(`${lines.at(-1)}\n`);
  }
}
writeFileSync(
  join(import.meta.dirname, 'report.md'),
  `# What the router adds to a weight swap

The time from the closing of the gate to its opening, against the same calls to an engine without the router (pause, load, label, resume).
Lower quartiles of ${SWAPS} swaps in turn, of simulated engines in processes of their own that load for ${LOAD_MS} ms. ${machine()}

| engine | streams | calls alone, ms | through the router, ms | added, ms |
| --- | --- | --- | --- | --- |
${lines.join('\n')}

Run it: \`npm run bench -- swap\`.
`,
);
