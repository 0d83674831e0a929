// What the plugin `feed` costs per turn, how long a finished group takes to a consumer that waits at 200 turns a second, and what a gigabyte of
// pending groups adds to the memory of the router.
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { cpuMicroseconds, readCpu, residentBytes } from '../proc.ts';
import { startNode, startRouter } from '../router.ts';

const GROUP = 8;
const CONNECTIONS = 16;
const ROUNDS = 5;
const TURNS = 4_000;
const WARM_UP = 4_000;
const PACED_PER_SEC = 200;
const PACED_SECS = 20;
/** 104 KB in the store: ten thousand of them are a gigabyte. */
const LONG_TOKENS = 8_000;
const SHORT_TOKENS = 460;

const feed = `feed:{"groupSize":${GROUP}}`;
const agent = new Agent({ keepAlive: true, maxSockets: 64 });
let asked = 0;
let port = 0;

/** A request to the router. @returns its response, of which nothing was read yet */
async function call(method: string, path: string, body = '', headers = {}): Promise<IncomingMessage> {
  const length = { 'content-length': Buffer.byteLength(body), ...headers };
  const sent = request({ port, host: '127.0.0.1', method, path, agent, headers: length }).end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return response;
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  for await (const part of response.setEncoding('latin1')) text += part as string;
  if (response.statusCode !== 200) throw new Error(`${response.statusCode}: ${text.slice(0, 400)}`);
  return text;
}

/** A turn of a new session: each eight of them are a group. @param isLast its session ends with it */
async function turn(tokens: number, isLast: boolean): Promise<number> {
  const number = asked++;
  const ids = Array.from(
    { length: tokens },
    (_, i) => 264 + ((Math.imul(number * tokens + i, 2_654_435_761) >>> 8) % 380),
  );
  const body = `{"input_ids":[${ids.join(',')}],"sampling_params":{"max_new_tokens":64},"return_logprob":true}`;
  const group = Math.floor(number / GROUP);
  const named = { 'x-session-id': `s${number}`, 'x-turnout-group': `g${group}` };
  const end = isLast ? { 'x-turnout-session-end': '1', 'x-turnout-reward': String(number % 2) } : {};
  await textOf(await call('POST', '/generate', body, { ...named, ...end }));
  return number;
}

async function turns(count: number, tokens: number): Promise<void> {
  let left = count;
  const client = async (): Promise<void> => {
    while (left-- > 0) await turn(tokens, true);
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, client));
}

interface Line {
  readonly group: string;
  readonly lease: string;
}

/** Takes and acknowledges groups until it is stopped. */
function consume(take: (group: string, atMs: number) => void): () => void {
  let isOver = false;
  void (async () => {
    while (!isOver) {
      const text = await textOf(await call('GET', '/feed?wait_secs=1&max_groups=64'));
      const atMs = performance.now();
      const lines = text.split('\n').filter((line) => line !== '');
      const groups = lines.map((line) => JSON.parse(line) as Line);
      for (const { group } of groups) take(group, atMs);
      const leases = groups.map(({ lease }) => lease);
      if (leases.length > 0) await textOf(await call('POST', '/feed/ack', JSON.stringify({ leases })));
    }
  })().catch((error: unknown) => {
    if (!isOver) throw error;
  });
  return () => (isOver = true);
}

async function withRouter<T>(engine: string, plugins: readonly string[], work: (child: ChildProcess) => Promise<T>) {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
  writeTokenizer(folder);
  const dataDir = join(folder, 'data');
  const options = ['--disable-health-check', '--policy', 'least_inflight', '--worker-urls', engine];
  options.push('--tokenizer-path', folder, '--data-dir', dataDir, '--radix-max-bytes', '33554432');
  const { child, port: own } = await startRouter([...options, ...plugins.flatMap((plugin) => ['--plugin', plugin])]);
  port = own;
  asked = 0;
  try {
    return await work(child);
  } finally {
    child.kill('SIGKILL');
    await once(child, 'exit');
    rmSync(folder, { recursive: true, force: true });
  }
}

/** µs of CPU of all threads of the router per turn. */
async function cost(child: ChildProcess): Promise<number[]> {
  await turns(WARM_UP, SHORT_TOKENS);
  const micros: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const before = readCpu([child.pid!]);
    await turns(TURNS, SHORT_TOKENS);
    micros.push(cpuMicroseconds(before, readCpu([child.pid!])) / TURNS);
  }
  return micros;
}

/** ms from the call that ends the last session of a group until a consumer that waits has the group. */
async function delays(): Promise<number[]> {
  const ended = new Map<string, number>();
  const late: number[] = [];
  const stop = consume((group, atMs) => late.push(atMs - (ended.get(group) ?? atMs)));
  const left = new Map<number, number>();
  const work: Promise<void>[] = [];
  const session = async (): Promise<void> => {
    const number = await turn(SHORT_TOKENS, false);
    const group = Math.floor(number / GROUP);
    const others = (left.get(group) ?? GROUP) - 1;
    left.set(group, others);
    if (others === 0) ended.set(`g${group}`, performance.now());
    await textOf(await call('POST', `/sessions/s${number}/finish`, `{"reward":${number % 2}}`));
  };
  const beganMs = performance.now();
  for (let sent = 0; sent < PACED_PER_SEC * PACED_SECS;) {
    const due = Math.floor(((performance.now() - beganMs) / 1_000) * PACED_PER_SEC);
    for (; sent < due; sent++) work.push(session());
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await Promise.all(work);
  while (late.length < Math.floor((PACED_PER_SEC * PACED_SECS) / GROUP))
    await new Promise((resolve) => setTimeout(resolve, 50));
  stop();
  return late.toSorted((a, b) => a - b);
}

/** Resident MB of the router with a tenth of the turns pending, and with all of them; and the size of the stored turns in MB. */
async function memory(child: ChildProcess, pendingTurns: number): Promise<readonly [number, number, number]> {
  const resident = (): number => residentBytes([child.pid!]) / 1_048_576;
  await turns(pendingTurns / 10, LONG_TOKENS);
  const before = resident();
  await turns(pendingTurns - pendingTurns / 10, LONG_TOKENS);
  const metrics = await textOf(await call('GET', '/metrics'));
  const stored = Number(/^turnout_trajectory_bytes (.*)$/m.exec(metrics)?.[1]) / 1_048_576;
  return [before, resident(), stored];
}

/** An engine at almost no cost, which counts so many prompt tokens. */
const engineFor = async (tokens: number): Promise<string> => {
  const program = join(import.meta.dirname, '../radix-tree/engine.ts');
  return `http://127.0.0.1:${(await startNode([program, String(tokens)], /(\d+)\n/)).found}`;
};

/** What is measured would be nothing where no group is made. */
async function check(what: 'acked' | 'ready', atLeast: number): Promise<void> {
  const stats = JSON.parse(await textOf(await call('GET', '/feed/stats'))) as Record<string, number>;
  if (stats[what]! < atLeast) throw new Error(`${what}: ${JSON.stringify(stats)}`);
}

/** Of one setup: µs of CPU a turn, one figure per round; resident MB with a tenth of the turns stored, and with all. */
export interface FeedFigures {
  readonly name: string;
  readonly micros: readonly number[];
  readonly memory: readonly [before: number, after: number, stored: number];
}

export interface FeedResult {
  readonly tree: FeedFigures;
  readonly feed: FeedFigures;
  /** ms, sorted. */
  readonly delays: readonly number[];
}

export const FEED_ROW = 'feed';
/** ms until a group is with its consumer (median), and MB of memory for a gigabyte of pending groups. */
export const delayTarget = 20;
export const memoryTarget = 50;

/** MB that grow with the feed and not without it. */
export const memoryOver = ({ tree, feed: own }: FeedResult): number =>
  own.memory[1] - own.memory[0] - (tree.memory[1] - tree.memory[0]);

export async function measureFeed(pendingTurns: number, say: (line: string) => void): Promise<FeedResult> {
  const short = await engineFor(SHORT_TOKENS);
  const long = await engineFor(LONG_TOKENS);
  const tree = 'radix-tree:{"verify":false}';
  say(FEED_ROW);
  const treeMicros = await withRouter(short, [tree], cost);
  const feedMicros = await withRouter(short, [tree, feed], async (child) => {
    const stop = consume(() => {});
    const micros = await cost(child);
    await check('acked', (ROUNDS * TURNS) / GROUP);
    stop();
    return micros;
  });
  const late = await withRouter(short, [tree, feed], delays);
  const treeMemory = await withRouter(long, [tree], (child) => memory(child, pendingTurns));
  const feedMemory = await withRouter(long, [tree, feed], async (child) => {
    const measured = await memory(child, pendingTurns);
    await check('ready', Math.floor(pendingTurns / GROUP) - 1);
    return measured;
  });
  return {
    tree: { name: 'radix-tree', micros: treeMicros, memory: treeMemory },
    feed: { name: 'radix-tree and feed', micros: feedMicros, memory: feedMemory },
    delays: late,
  };
}
