// The cost of the radix tree per request: 2 KB of prompt, 64 tokens with logprobs; with the plugin and without it.
// Prompts are ids, without tokenising (the last figure includes it).
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { decode } from '../../simulator/src/tokens/tokenizer.ts';
import { median } from '../median.ts';
import { cpuMicroseconds, readCpu } from '../proc.ts';
import { startNode, startRouter } from '../router.ts';

export const RADIX_ROW = 'radix-2k';
/** µs of CPU per request more than without the plugin, for all threads. */
export const radixTarget = 150;
export const loopTarget = 40;

const CONNECTIONS = 32;
const PROMPT_TOKENS = 460;
/** The common prefix of all prompts. */
const SHARED_TOKENS = 100;
const TOKENS = 380;
/** Requests until all code is compiled and the trees and the store (256 MB) are full. */
const WARM_UP = 70_000;
/** For prompts as text, where tokenising costs most. */
const TEXT_WARM_UP = 5_000;

/** One setup with its figures, µs of CPU per request of all threads of the router, one per round. */
export interface RadixFigures {
  readonly name: string;
  readonly micros: number[];
  /** Of the event loop alone. */
  readonly loopMicros: number[];
}

export interface RadixResult {
  readonly plain: RadixFigures;
  readonly tree: RadixFigures;
  /** The same with prompts as text, including tokenising. */
  readonly text: RadixFigures;
}

let asked = 0;

/** A new prompt after the common prefix. */
function body(kind: 'ids' | 'text'): string {
  const first = asked++ * PROMPT_TOKENS;
  const ids = Array.from({ length: PROMPT_TOKENS }, (_, i) => {
    const drawn = i < SHARED_TOKENS ? i : Math.imul(first + i, 2_654_435_761) >>> 8;
    return 264 + (drawn % TOKENS);
  });
  const prompt = kind === 'ids' ? `"input_ids":[${ids.join(',')}]` : `"text":${JSON.stringify(decode(ids))}`;
  return `{${prompt},"sampling_params":{"max_new_tokens":64,"temperature":1},"return_logprob":true}`;
}

/** Sends this many requests, one after the other on each connection. */
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

/** The routers keep running and take turns, so that changes of the machine affect all of them. */
export async function measureRadix({ requests, rounds, folder, say }: RadixRun): Promise<RadixResult> {
  mkdirSync(folder, { recursive: true });
  writeTokenizer(folder);
  const children: ChildProcess[] = [];
  const plain: RadixFigures = { name: 'plain path', micros: [], loopMicros: [] };
  const tree: RadixFigures = { name: 'radix-tree', micros: [], loopMicros: [] };
  const text: RadixFigures = { name: 'radix-tree, prompts as text', micros: [], loopMicros: [] };
  try {
    const engine = await startNode([join(import.meta.dirname, 'engine.ts'), String(PROMPT_TOKENS)], /(\d+)\n/);
    children.push(engine.child);
    const options = ['--host', '127.0.0.1', '--disable-health-check', '--policy', 'least_inflight'];
    const serve = async (...more: string[]) => {
      const router = await startRouter([...options, '--worker-urls', `http://127.0.0.1:${engine.found}`, ...more]);
      children.push(router.child);
      return { pid: router.child.pid!, port: router.port };
    };
    const without = await serve();
    const serveTree = () => serve('--tokenizer-path', folder, '--plugin', 'radix-tree:{"verify":false}');
    const setups = [
      { figures: plain, router: without, kind: 'ids' },
      { figures: tree, router: await serveTree(), kind: 'ids' },
      { figures: text, router: await serveTree(), kind: 'text' },
    ] as const;
    for (const { router, kind } of setups) {
      await load(router.port, kind, kind === 'ids' ? WARM_UP : TEXT_WARM_UP);
    }
    for (let round = 1; round <= rounds; round++) {
      for (const { figures, router, kind } of setups) {
        const before = readCpu([router.pid]);
        await load(router.port, kind, requests);
        const after = readCpu([router.pid]);
        figures.micros.push(cpuMicroseconds(before, after) / requests);
        // The first thread of a process has the process's number.
        const loop = new Map([...after].filter(([thread]) => thread === String(router.pid)));
        figures.loopMicros.push(cpuMicroseconds(before, loop) / requests);
        const [all, own] = [figures.micros, figures.loopMicros].map((list) => list.at(-1)!.toFixed(1));
        say(`${RADIX_ROW}  round ${round}/${rounds}  ${figures.name}  ${all} µs, event loop ${own} µs`);
      }
    }
  } finally {
    for (const child of children) child.kill('SIGKILL');
  }
  return { plain, tree, text };
}

/** The cost of the tree per request. */
export const overPlain = ({ plain, tree }: RadixResult): number => median(tree.micros) - median(plain.micros);

/** The event loop's part of that. */
export const loopOverPlain = ({ plain, tree }: RadixResult): number =>
  median(tree.loopMicros) - median(plain.loopMicros);
