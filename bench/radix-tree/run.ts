// What the radix tree costs a request: 2 KB asked, 64 tokens with logprobs answered; with the plugin, and without it. Prompts are
// ids, so that tokenising is not in it (the last figure has it). `node bench/radix-tree/run.ts [requests] [rounds]`
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTokenizer } from '../../router/src/sim/tokenizer-files.ts';
import { decode } from '../../router/src/sim/tokenizer.ts';
import { machine } from '../machine.ts';
import { cpuMicroseconds, readCpu } from '../proc.ts';

const requests = Number(process.argv[2] ?? 20_000);
const rounds = Number(process.argv[3] ?? 5);
const CONNECTIONS = 32;
const PROMPT_TOKENS = 460;
const target = 60;

const main = join(import.meta.dirname, '../../router/bin/turnout.js');
const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
writeTokenizer(folder);

interface Started {
  readonly pid: number;
  readonly found: string;
}

const stops: (() => void)[] = [];

/** Starts a program; resolves with what `find` sees in its output. */
function start(args: readonly string[], find: RegExp): Promise<Started> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  stops.push(() => void child.kill('SIGKILL'));
  return new Promise((resolve, reject) => {
    let text = '';
    child.on('exit', () => reject(new Error(`it ended: ${text}`)));
    child.stdout.on('data', (part: Buffer) => {
      text += part.toString();
      const found = find.exec(text)?.[1];
      if (found !== undefined) resolve({ pid: child.pid!, found });
    });
  });
}

let asked = 0;

/** A prompt that was not there before, behind a beginning that all have. */
function body(kind: 'ids' | 'text'): string {
  const number = asked++;
  const ids = Array.from({ length: PROMPT_TOKENS }, (_, i) => 264 + ((i < 100 ? i : i * 31 + number * (i % 7)) % 380));
  const prompt = kind === 'ids' ? `"input_ids":[${ids.join(',')}]` : `"text":${JSON.stringify(decode(ids))}`;
  return `{${prompt},"sampling_params":{"max_new_tokens":64,"temperature":1},"return_logprob":true}`;
}

/** Sends so many requests, each connection one after the other. */
async function load(port: number, kind: 'ids' | 'text', count: number): Promise<void> {
  const bodies = Array.from({ length: count }, () => body(kind));
  let next = 0;
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const socket = connect(port, '127.0.0.1').setNoDelay(true);
      await once(socket, 'connect');
      let length = 0;
      let want = -1;
      await new Promise<void>((resolve, reject) => {
        const send = (): void => {
          if (next >= bodies.length) return resolve();
          const text = bodies[next++]!;
          length = 0;
          want = -1;
          socket.write(`POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: ${text.length}\r\n\r\n${text}`);
        };
        socket.on('error', reject);
        socket.on('close', () => reject(new Error('the router closed')));
        socket.on('data', (bytes) => {
          if (want < 0) {
            const head = bytes.toString('latin1');
            if (!head.startsWith('HTTP/1.1 200')) return reject(new Error(head.slice(0, 400)));
            want = head.indexOf('\r\n\r\n') + 4 + Number(/content-length: (\d+)/i.exec(head)![1]);
          }
          length += bytes.length;
          if (length >= want) send();
        });
        send();
      });
      socket.removeAllListeners('close').destroy();
    }),
  );
}

const figures = new Map<string, number[]>();
try {
  const engine = await start([join(import.meta.dirname, 'engine.ts'), String(PROMPT_TOKENS)], /(\d+)\n/);
  const serve = (...more: string[]) =>
    start(
      [
        main,
        ...'serve --host 127.0.0.1 --port 0 --prometheus-port 0 --disable-health-check --policy least_inflight'.split(
          ' ',
        ),
        '--worker-urls',
        `http://127.0.0.1:${engine.found}`,
        ...more,
      ],
      /listening on http:\/\/127\.0\.0\.1:(\d+)/,
    );
  const plain = await serve();
  const tree = await serve('--tokenizer-path', folder, '--plugin', 'radix-tree:{"verify":false}');
  const cases = [
    { name: 'plain road', router: plain, kind: 'ids' },
    { name: 'radix-tree', router: tree, kind: 'ids' },
    { name: 'radix-tree, tokenising text', router: tree, kind: 'text' },
  ] as const;
  for (const { router, kind } of cases) await load(Number(router.found), kind, Math.min(requests, 3000));
  for (let round = 0; round < rounds; round++) {
    for (const { name, router, kind } of cases) {
      const before = readCpu([router.pid]);
      await load(Number(router.found), kind, requests);
      const micros = cpuMicroseconds(before, readCpu([router.pid])) / requests;
      figures.set(name, [...(figures.get(name) ?? []), micros]);
    }
  }
} finally {
  for (const stop of stops) stop();
  rmSync(folder, { recursive: true });
}

const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)]!;
process.stdout.write(
  `${machine()}\n${requests} requests, median of ${rounds} rounds, µs of CPU a request (all threads)\n`,
);
for (const [name, list] of figures) {
  process.stdout.write(
    `  ${name.padEnd(30)} ${median(list).toFixed(1)}  (${list.map((one) => one.toFixed(0)).join(' ')})\n`,
  );
}
const more = median(figures.get('radix-tree')!) - median(figures.get('plain road')!);
process.stdout.write(
  `  the tree's own: ${more.toFixed(1)} µs, target at most ${target}: ${more <= target ? 'met' : 'missed'}\n`,
);
