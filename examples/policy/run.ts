import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Plugin, type Router, loadConfig, startRouter } from '../../router/src/index.ts';
import { openLog } from '../../router/src/observe/log.ts';
import { startSimEngine } from '../../simulator/src/engine.ts';

/** Runs the policy: 300 sessions of 3 turns on four simulated engines, one of them the canary. */

const SESSIONS = 300;
const TURNS = 3;
const AT_ONCE = 25;

/** The worker of each turn: a plugin is notified when an exchange ends. */
const served: { session: string; worker: string }[] = [];
const recorder: Plugin = {
  name: 'recorder',
  finished: (x) => void served.push({ session: x.head.get('x-session-id') ?? '', worker: x.worker?.url ?? 'nobody' }),
};

async function register(router: Router, url: string, isCanary: boolean): Promise<void> {
  const response = await fetch(`${router.url}/workers`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ url, labels: { canary: String(isCanary) } }),
  });
  if (response.status !== 202) throw new Error(`${url} was not taken: ${await response.text()}`);
}

async function runSession(router: Router, session: string): Promise<void> {
  let prompt = `Session ${session} begins. `;
  for (let turn = 0; turn < TURNS; turn++) {
    const response = await fetch(`${router.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-session-id': session },
      body: JSON.stringify({ model: 'sim', prompt, max_tokens: 8, seed: turn }),
    });
    const answer = (await response.json()) as { choices: { text: string }[] };
    prompt += `${answer.choices[0]!.text} Go on. `;
  }
}

const engines = await Promise.all([0, 1, 2, 3].map(() => startSimEngine({ kind: 'vllm', timeScale: 0 })));
const config = loadConfig(
  { port: 0, prometheusPort: 0, policy: join(import.meta.dirname, 'canary.ts') },
  {},
  undefined,
);
const router = await startRouter(config, { plugins: [recorder], log: openLog('critical').logger });
for (const [i, { url }] of engines.entries()) await register(router, url, i === 3);
// Until the first health check of an engine, requests for its model go to the workers that are known to serve it.
while (router.fleet.workers.some(({ models }) => models === null)) await delay(10);

const names = Array.from({ length: SESSIONS }, (_, i) => `trajectory-${i}`);
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    for (let name = names.pop(); name !== undefined; name = names.pop()) await runSession(router, name);
  }),
);
await router.close(5_000);
await Promise.all(engines.map((engine) => engine.close()));

const homes = new Map<string, string>();
let moved = 0;
for (const { session, worker } of served) {
  if ((homes.get(session) ?? worker) !== worker) moved++;
  homes.set(session, worker);
}
const count = (worker: string): number => [...homes.values()].filter((home) => home === worker).length;
process.stdout.write(`${SESSIONS} sessions of ${TURNS} turns, policy examples/policy/canary.ts, SIMULATED engines\n\n`);
for (const [i, { url }] of engines.entries()) {
  process.stdout.write(`  ${url.padEnd(24)} ${i === 3 ? 'canary' : '      '}  ${count(url)} sessions\n`);
}
const share = count(engines[3]!.url) / SESSIONS;
process.stdout.write(`
${(100 * share).toFixed(1)} % of the sessions at the canary (asked for: 10 %), ${moved} turns away from their session's worker

The same with real engines:
  npm run turnout -- serve --policy examples/policy/canary.ts
  curl http://127.0.0.1:30000/workers -H "content-type: application/json" -d '{"url": "http://host:8000", "labels": {"canary": "true"}}'
How to write one: docs/guides/write-a-policy.md
`);
const isRight = served.length === SESSIONS * TURNS && moved === 0 && share > 0.05 && share < 0.16;
process.exitCode = isRight ? 0 : 1;
