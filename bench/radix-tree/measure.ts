// What the radix tree costs a request: 2 KB asked, 64 tokens with logprobs answered; with the plugin, and without it. Prompts are
// ids, so that tokenising is not in it (the last figure has it).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { writeTokenizer } from '../../router/src/sim/tokenizer-files.ts';
import { decode } from '../../router/src/sim/tokenizer.ts';
import { endsWithUs } from '../child.ts';
import { cpuMicroseconds, readCpu } from '../proc.ts';

export const RADIX_ROW = 'radix-2k';
/** µs of CPU a request more than without the plugin: of all threads, and of the event loop alone. */
export const radixTarget = 150;
export const loopTarget = 40;

const CONNECTIONS = 32;
const PROMPT_TOKENS = 460;
/** What all prompts begin with. */
const SHARED_TOKENS = 100;
const TOKENS = 380;
/** So many requests until what is compiled just in time is compiled, and trees and the store (256 MB) are as full as they get. */
const WARM_UP = 70_000;
/** With prompts as text, where that is little beside tokenising them. */
const TEXT_WARM_UP = 5_000;

const main = join(import.meta.dirname, '../../router/bin/turnout.js');

/** One road with its figures, µs of CPU a request, all threads of the router together: one of each round. */
export interface RadixRoad {
  readonly name: string;
  readonly micros: number[];
  /** Of the event loop alone. */
  readonly loopMicros: number[];
}

export interface RadixResult {
  readonly plain: RadixRoad;
  readonly tree: RadixRoad;
  /** The same with prompts as text: tokenising them is in it. */
  readonly text: RadixRoad;
}

interface Started {
  readonly pid: number;
  readonly found: string;
}

/** Starts a program; resolves with what `find` sees in its output. */
function start(args: readonly string[], find: RegExp, stops: (() => void)[]): Promise<Started> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  endsWithUs(child);
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
  const first = asked++ * PROMPT_TOKENS;
  const ids = Array.from({ length: PROMPT_TOKENS }, (_, i) => {
    const drawn = i < SHARED_TOKENS ? i : Math.imul(first + i, 2_654_435_761) >>> 8;
    return 264 + (drawn % TOKENS);
  });
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

export interface RadixRun {
  readonly requests: number;
  readonly rounds: number;
  /** An empty folder. */
  readonly folder: string;
  readonly say: (line: string) => void;
}

/** The routers stay up and take turns, so that a change of the machine's mood meets them all. */
export async function measureRadix({ requests, rounds, folder, say }: RadixRun): Promise<RadixResult> {
  mkdirSync(folder, { recursive: true });
  writeTokenizer(folder);
  const stops: (() => void)[] = [];
  const plain: RadixRoad = { name: 'plain path', micros: [], loopMicros: [] };
  const tree: RadixRoad = { name: 'radix-tree', micros: [], loopMicros: [] };
  const text: RadixRoad = { name: 'radix-tree, prompts as text', micros: [], loopMicros: [] };
  try {
    const engine = await start([join(import.meta.dirname, 'engine.ts'), String(PROMPT_TOKENS)], /(\d+)\n/, stops);
    const options = '--host 127.0.0.1 --port 0 --prometheus-port 0 --disable-health-check --policy least_inflight';
    const serve = (...more: string[]) =>
      start(
        [main, 'serve', ...options.split(' '), '--worker-urls', `http://127.0.0.1:${engine.found}`, ...more],
        /listening on http:\/\/127\.0\.0\.1:(\d+)/,
        stops,
      );
    const without = await serve();
    const serveTree = () => serve('--tokenizer-path', folder, '--plugin', 'radix-tree:{"verify":false}');
    const roads = [
      { road: plain, router: without, kind: 'ids' },
      { road: tree, router: await serveTree(), kind: 'ids' },
      { road: text, router: await serveTree(), kind: 'text' },
    ] as const;
    for (const { router, kind } of roads) {
      await load(Number(router.found), kind, kind === 'ids' ? WARM_UP : TEXT_WARM_UP);
    }
    for (let round = 1; round <= rounds; round++) {
      for (const { road, router, kind } of roads) {
        const before = readCpu([router.pid]);
        await load(Number(router.found), kind, requests);
        const after = readCpu([router.pid]);
        road.micros.push(cpuMicroseconds(before, after) / requests);
        // The first thread of a process has its number.
        const loop = new Map([...after].filter(([thread]) => thread === String(router.pid)));
        road.loopMicros.push(cpuMicroseconds(before, loop) / requests);
        const [all, own] = [road.micros, road.loopMicros].map((list) => list.at(-1)!.toFixed(1));
        say(`${RADIX_ROW}  round ${round}/${rounds}  ${road.name}  ${all} µs, event loop ${own} µs`);
      }
    }
  } finally {
    for (const stop of stops) stop();
  }
  return { plain, tree, text };
}

export const median = (list: readonly number[]): number =>
  list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN;

/** What the tree costs a request. */
export const overPlain = ({ plain, tree }: RadixResult): number => median(tree.micros) - median(plain.micros);

/** What of that is the event loop's. */
export const loopOverPlain = ({ plain, tree }: RadixResult): number =>
  median(tree.loopMicros) - median(plain.loopMicros);
