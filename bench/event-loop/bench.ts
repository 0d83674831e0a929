// node bench/event-loop/bench.ts [policy...]: how long inputs within the limits hold the router's event loop, at most; beside it how
// much of that its thread was at work (the rest it waited for a core, or for V8's own threads to get one), and how long the
// loop of a process that does nothing was held meanwhile.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Longest } from './probe.ts';

const root = join(import.meta.dirname, '../..');
const MB = 1 << 20;
const RUNS = 5;

const filled = (text: string, bytes: number): string => text.repeat(Math.ceil(bytes / text.length));
/** What costs most to read of all that was tried: short runs of numbers, each ended by a string. */
const worst = `[${'1,'.repeat(40)}"x"],`;
const json = (bytes: number, text: string): Buffer => Buffer.from(`{"prompt":"${filled(text, bytes)}"}`);
const list = (bytes: number, item: string): Buffer => Buffer.from(`{"input_ids":[${filled(item, bytes)}1]}`);

const inputs: readonly [name: string, path: string, body: Buffer | null, isChunked?: true][] = [
  ['a small request', '/v1/completions', json(1_000, 'Hello. ')],
  ['text, 0.5 MB', '/v1/completions', json(MB / 2 - 1_000, 'The quick brown fox. ')],
  ['text, 16 MB', '/v1/completions', json(16 * MB - 1_000, 'The quick brown fox. ')],
  ['token ids, 1.5 MB', '/generate', list(1.5 * MB, '12345,67,8901,')],
  ['token ids, 16 MB', '/generate', list(16 * MB - 1_000, '12345,67,8901,')],
  ['worst JSON, 0.5 MB', '/generate', list(MB / 2 - 1_000, worst)],
  ['worst JSON, 16 MB', '/generate', list(16 * MB - 1_000, worst)],
  ['no JSON, 100 MB', '/upload', Buffer.alloc(100 * MB, 'x')],
  ['no JSON, 100 MB in chunks', '/upload', Buffer.alloc(100 * MB, 'x'), true],
  ['the router itself, 250 KB', '/workers', list(250_000, '{"a":1},')],
  ['metrics of 500 workers', '/metrics', null],
];

function send(port: number, path: string, body: Buffer | null, isChunked = false): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const method = body === null ? 'GET' : 'POST';
  const length = isChunked ? {} : { 'content-length': body?.length ?? 0 };
  const headers = { 'content-type': 'application/json', ...length };
  const asked = request({ host: '127.0.0.1', port, path, method, headers }, (answer) =>
    answer.resume().on('end', resolve),
  );
  asked.on('error', reject);
  if (isChunked) for (let at = 0; at < body!.length; at += 65_536) asked.write(body!.subarray(at, at + 65_536));
  asked.end(isChunked ? undefined : body);
  return promise;
}

const withProbe = ['--import', join(import.meta.dirname, 'probe.ts')];

async function startRouter(policy: string, engine: string): Promise<{ child: ChildProcess; port: number }> {
  const urls = Array.from({ length: 500 }, (_, rank) => `${engine}@${rank}`);
  const options = ['--port', '0', '--prometheus-port', '0', '--disable-health-check', '--policy', policy];
  const program = [join(root, 'router/bin/turnout.js'), ...options, '--worker-urls', ...urls];
  const child = spawn(process.execPath, [...withProbe, ...program], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  let text = '';
  for await (const part of child.stdout! as AsyncIterable<Buffer>) {
    text += part.toString();
    const port = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(text)?.[1];
    if (port !== undefined) return { child, port: Number(port) };
  }
  throw new Error(text);
}

async function longest(child: ChildProcess): Promise<Longest> {
  child.send('asks');
  const [answer] = (await once(child, 'message')) as [Longest];
  return answer;
}

const sorted = (numbers: readonly number[]): string[] => {
  const [best = 0, , median = 0, , most = 0] = numbers.toSorted((a, b) => a - b);
  return [best, median, most].map((ms) => ms.toFixed(1));
};

const engine = createServer((asked, answer) => void asked.resume().on('end', () => answer.end('{}')));
engine.listen(0, '127.0.0.1');
await once(engine, 'listening');
const engineUrl = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
const idle = spawn(process.execPath, [...withProbe, '--eval', 'process.channel.ref()'], {
  stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
});
const policies = process.argv.slice(2);
const columns = [
  'policy',
  'input',
  'best ms',
  'median',
  'most',
  'at work, best',
  'median',
  'most',
  'idle process, best',
];
process.stdout.write(`| ${[...columns, 'median', 'most'].join(' | ')} |\n|${' --- |'.repeat(11)}\n`);
for (const policy of policies.length > 0 ? policies : ['least_inflight', 'rollout', 'cache_aware']) {
  const { child, port } = await startRouter(policy, engineUrl);
  for (const [name, path, body, isChunked] of inputs) {
    const runs: Longest[] = [];
    const idleMs: number[] = [];
    for (let i = 0; i < RUNS; i++) {
      await Promise.all([longest(child), longest(idle)]);
      await send(port, path, body, isChunked);
      runs.push(await longest(child));
      idleMs.push((await longest(idle)).ms);
    }
    const [wall, cpu] = [runs.map(({ ms }) => ms), runs.map(({ cpuMs }) => cpuMs)];
    const cells = [policy, name, ...sorted(wall), ...sorted(cpu), ...sorted(idleMs)];
    process.stdout.write(`| ${cells.join(' | ')} |\n`);
  }
  child.kill('SIGKILL');
}
idle.kill('SIGKILL');
engine.close();
