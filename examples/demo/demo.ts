import { createServer } from 'node:net';
import { parseArgs } from 'node:util';
import { KV_TOKENS, MOST_SHARE, comparePolicies, comparisonTable, rolloutShare, shape } from './comparison.ts';
import { showExactness } from './exactness.ts';
import { startFleet } from './fleet.ts';
import { showSurvival } from './survival.ts';

/**
 * Three demonstrations in less than a minute, each of which fails if it does not show what it says: what the rollout policy gains if contexts
 * exceed the KV cache, what happens to streams when their engine is killed, and which token ids reach training.
 */

const { values: flags } = parseArgs({
  options: {
    /** Keeps four engines and a router with the rollout policy running. */
    keep: { type: 'boolean', default: false },
    /** With --keep: serves at once, without the demonstrations. */
    'skip-runs': { type: 'boolean', default: false },
    port: { type: 'string', default: '0' },
  },
});

const say = (text: string): void => void process.stdout.write(`${text}\n`);

/** @returns what was not as it must be */
function compare(): string[] {
  say(
    `1. Four policies in simulated time: five batches of ${shape.sessions} sessions whose contexts outgrow the KV cache`,
  );
  const all = comparePolicies();
  const { least, median, most } = rolloutShare(all);
  say(comparisonTable(all));
  const share = `${median.toFixed(2)} (${least.toFixed(2)} to ${most.toFixed(2)})`;
  say(`The batches take rollout ${share} of the time of the best other policy.`);
  return most <= MOST_SHARE ? [] : [`rollout took ${most.toFixed(2)} of the time of the best other policy`];
}

async function keep(): Promise<void> {
  const fleet = await startFleet({ kind: 'sglang', kvTokens: KV_TOKENS }, { port: Number(flags.port) });
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

/** Checked first: the port of --keep must be free. */
async function checkPort(port: number): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', () => reject(new Error(`--port ${port}: another process listens there`)));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve()));
  });
}

async function main(): Promise<number> {
  if (flags.keep && flags.port !== '0') await checkPort(Number(flags.port));
  const problems: string[] = [];
  if (!flags['skip-runs']) {
    say('turnout demo: engines are SIMULATED (made-up tokens, a model of time and memory)\n');
    problems.push(...compare());
    say('\n2. An engine dies: four engines on sockets, --resume on');
    problems.push(...(await showSurvival(say)));
    say('\n3. Token ids for training');
    problems.push(...(await showExactness(say)));
  }
  for (const problem of problems) say(`demo: NOT AS EXPECTED: ${problem}`);
  if (flags.keep) await keep();
  else {
    say(`\nNext:
  npm run demo -- --keep --skip-runs                    the same fleet to try with curl
  npx turnout bench --worker-urls http://host:port …    policies on your own engines, compared
  npx turnout serve --worker-urls http://host:port …    route to them
  npx turnout doctor --worker-urls http://host:port …   see what they lack`);
  }
  return problems.length === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  say(`demo: ${(error as Error).message}`);
  return 1;
});
