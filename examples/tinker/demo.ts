import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { parseArgs } from 'node:util';
import { freePort } from '../../router/test/harness/free-port.ts';
import { newest, pythonOf, whyMissing } from '../../router/test/clients/environments.ts';

/**
 * The real tinker SDK against four SIMULATED engines: trajectories whose turns keep their routing key. At the end the keys of client and
 * server are compared.
 */

const { values: flags } = parseArgs({
  options: {
    'num-trajectories': { type: 'string', default: '4' },
    turns: { type: 'string', default: '3' },
  },
});

/** Deprecations of the SDK and of its tokenizer library are not the demonstration's. */
const quiet = { PYTHONWARNINGS: 'ignore', TRANSFORMERS_VERBOSITY: 'error' };

const example = join(import.meta.dirname, 'session_based_routing');
const say = (text: string): void => void process.stdout.write(`${text}\n`);

const sent: string[] = [];
const dispatched: string[] = [];
const workersByKey = new Map<string, Set<string>>();

/** Without time and level. */
const messageOf = (line: string): string => line.replace(/^\S+ +[A-Z]+ +/, '');

function readServer(line: string): void {
  const message = messageOf(line);
  const key = /^\[sticky-routing\] .* session_id=(\S+)/.exec(message)?.[1];
  if (key !== undefined) dispatched.push(key);
  const [, placed, worker] = /routing: key='header:x-session-id:(\S+)' -> worker='(\S+)'/.exec(message) ?? [];
  if (placed !== undefined) workersByKey.set(placed, (workersByKey.get(placed) ?? new Set()).add(worker!));
  if (key !== undefined || placed !== undefined) say(`server: ${message}`);
}

function readClient(line: string): void {
  const key = /^client: dispatch routing-key=(\S+)/.exec(line)?.[1];
  if (key !== undefined) sent.push(key);
  say(line);
}

const lines = (stream: Readable, read: (line: string) => void): void =>
  void createInterface({ input: stream }).on('line', read);

/** @returns whether client and server agree */
function compare(): boolean {
  const count = (keys: readonly string[], key: string): number => keys.filter((each) => each === key).length;
  say('\nrouting key                                client  server  worker');
  for (const key of new Set([...sent, ...dispatched].toSorted())) {
    const workers = [...(workersByKey.get(key) ?? [])].join(' AND ');
    say(
      `${key.padEnd(42)} ${String(count(sent, key)).padStart(6)} ${String(count(dispatched, key)).padStart(7)}  ${workers}`,
    );
  }
  const isSame = sent.length > 0 && sent.toSorted().join() === dispatched.toSorted().join();
  const hasOneWorker = sent.every((key) => workersByKey.get(key)?.size === 1);
  say(isSame ? `Client and server agree on all ${sent.length} dispatches.` : 'Client and server DIFFER.');
  say(hasOneWorker ? 'Each routing key went to one worker.' : 'A routing key went to SEVERAL workers.');
  return isSame && hasOneWorker;
}

async function main(): Promise<number> {
  say(`turnout demo: tinker ${newest} against 4 SIMULATED engines (made-up tokens)\n`);
  const missing = await whyMissing(newest, (line) => say(`${line} (once, 350 MB)`));
  if (missing !== false) throw new Error(missing);
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), 'turnout-tinker-'));
  const env = { ...process.env, PORT: String(port), MODEL: join(folder, 'sim') };
  const server = spawn('bash', [join(example, 'run_tinker_server.sh')], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const listens = Promise.withResolvers<void>();
  lines(server.stdout, (line) => {
    if (/ listening on http/.test(line)) listens.resolve();
    readServer(line);
  });
  const serverEnds = once(server, 'exit');
  void serverEnds.then(() => listens.reject(new Error('the server ended')));
  try {
    await listens.promise;
    const args = [
      '--base-url',
      `http://127.0.0.1:${port}`,
      '--num-trajectories',
      flags['num-trajectories'],
      '--turns',
      flags.turns,
    ];
    const client = spawn(pythonOf(newest), [join(example, 'sample_session_routing_demo.py'), ...args], {
      env: { ...process.env, ...quiet, TINKER_API_KEY: 'tml-dummy', HF_HUB_OFFLINE: '1' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    lines(client.stdout, readClient);
    const [status] = (await once(client, 'close')) as [number | null];
    if (status !== 0) throw new Error('the client failed');
  } finally {
    server.kill('SIGTERM');
    await serverEnds;
    rmSync(folder, { recursive: true, force: true });
  }
  return compare() ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  say(`demo: ${(error as Error).message}`);
  return 1;
});
