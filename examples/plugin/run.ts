import { join } from 'node:path';
import { loadConfig, startRouter } from '../../router/src/index.ts';
import { openLog } from '../../router/src/observe/log.ts';
import { startSimEngine } from '../../simulator/src/engine.ts';

/** Runs the plugin: ten groups with a budget each, on two simulated engines; some groups want more. */

const GROUPS = 10;
const BUDGET = 96;
const ANSWER_TOKENS = 16;

const engines = await Promise.all([0, 1].map(() => startSimEngine({ kind: 'vllm', timeScale: 0 })));
const config = loadConfig(
  {
    port: 0,
    prometheusPort: 0,
    workerUrls: engines.map(({ url }) => url),
    plugin: [`${join(import.meta.dirname, 'budget.ts')}:{"tokens":${BUDGET}}`],
  },
  {},
  undefined,
);
const router = await startRouter(config, { log: openLog('critical').logger });
// A worker gets requests after its first passed health check.
while ((await fetch(`${router.url}/readiness`)).status !== 200) await new Promise((resolve) => setTimeout(resolve, 20));

/** Sends requests until all have a response or are refused. @returns the number of responses */
async function runGroup(group: string, wanted: number): Promise<number> {
  for (let answered = 0; answered < wanted; answered++) {
    const response = await fetch(`${router.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-turnout-group': group },
      body: JSON.stringify({
        model: 'sim',
        prompt: `Prompt of ${group}.`,
        max_tokens: ANSWER_TOKENS,
        ignore_eos: true,
      }),
    });
    await response.text();
    if (response.status === 429) return answered;
    if (response.status !== 200) throw new Error(`status ${response.status}`);
  }
  return wanted;
}

const wanted = Array.from({ length: GROUPS }, (_, i) => 2 + i);
const answered = await Promise.all(wanted.map((count, i) => runGroup(`group-${i}`, count)));
const accounts = (await (await fetch(`${router.url}/budget`)).json()) as Record<string, { tokens: number }>;
await router.close(5_000);
await Promise.all(engines.map((engine) => engine.close()));

process.stdout.write(
  `${GROUPS} groups with ${BUDGET} tokens each, plugin examples/plugin/budget.ts, SIMULATED engines\n\n`,
);
for (const [i, count] of wanted.entries()) {
  const { tokens } = accounts[`group-${i}`]!;
  process.stdout.write(
    `  group-${i}  ${String(count).padStart(2)} wanted, ${answered[i]} answered, ${tokens} tokens\n`,
  );
}
process.stdout.write(`
The same with real engines:
  npm run turnout -- serve --plugin 'examples/plugin/budget.ts:{"tokens":100000}' --worker-urls http://host:8000
How to write one: docs/guides/write-a-plugin.md
`);
const most = BUDGET / ANSWER_TOKENS;
const isRight = answered.every((count, i) => count === Math.min(wanted[i]!, most));
process.exitCode = isRight ? 0 : 1;
