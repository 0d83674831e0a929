// npm run bench -- store-wait: the cost for a stream whose last event is sent only when its turn is stored (--store-wait): the time from the
// engine's write of that event to its client, with 200 streams at once and SQLite in a data folder.
import { mkdtempSync, rmSync } from 'node:fs';
import { type Socket, connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { decode } from '../../simulator/src/tokens/tokenizer.ts';
import { startRouter } from '../router.ts';

const STREAMS = 200;
const EVENTS = 32;
const EVENT_MS = 50;
const ROUNDS = 2;
const WARM_UP_MS = 4_000;
const MEASURED_MS = 8_000;

const ids = Array.from({ length: EVENTS }, (_, i) => 264 + ((i * 7) % 380));
const event = (to: number): string =>
  JSON.stringify({
    text: decode(ids.slice(0, to)),
    output_ids: ids.slice(0, to),
    meta_info: {
      finish_reason: to === EVENTS ? { type: 'length', length: EVENTS } : null,
      prompt_tokens: 100,
      weight_version: '1',
      completion_tokens: to,
      output_token_logprobs: ids.slice(0, to).map((id, i) => [Math.fround(-0.7 - i / 57), id, null]),
    },
    index: 0,
  });
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const events = ids.map((_, i) => chunk(`data: ${event(i + 1)}\n\n`));
const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
const FINISH = Buffer.from('"finish_reason":{');

/** When the last event of a stream was written, by the first token of its prompt. */
const written = new Map<number, number>();
const promptOf = (call: number): number[] => Array.from({ length: 100 }, (_, i) => 264 + ((call * (i + 3)) % 380));

function answer(socket: Socket, call: number): void {
  socket.write(HEAD);
  let sent = 0;
  const timer = setInterval(() => {
    if (socket.destroyed) clearInterval(timer);
    else if (sent === EVENTS - 1) {
      clearInterval(timer);
      written.set(call, performance.now());
      socket.write(`${events[sent]!}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
    } else socket.write(events[sent++]!);
  }, EVENT_MS);
}

const engine = createServer((socket) => {
  socket.setNoDelay(true).setMaxListeners(0);
  socket.on('error', () => {});
  let text = '';
  socket.on('data', (bytes) => {
    text += bytes.toString('latin1');
    const end = text.indexOf('\r\n\r\n');
    const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0);
    if (end < 0 || text.length < end + 4 + length) return;
    const call = Number(/"rid":"(\d+)"/.exec(text)?.[1]);
    text = '';
    answer(socket, call);
  });
});

let calls = 0;
/** Sends requests continuously. @param late receives the delay of each last event in ms */
function client(port: number, late: (ms: number) => void, isOver: () => boolean): void {
  const socket = connect(port, '127.0.0.1').setNoDelay(true);
  let call = 0;
  let tail = '';
  let hasFinish = false;
  const ask = (): void => {
    if (isOver()) return void socket.destroy();
    call = ++calls;
    tail = '';
    hasFinish = false;
    const body = JSON.stringify({ rid: String(call), input_ids: promptOf(call), stream: true, return_logprob: true });
    socket.write(
      `POST /generate HTTP/1.1\r\nhost: x\r\nx-session-id: s${call}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
  };
  socket.on('error', () => {});
  socket.on('connect', ask);
  socket.on('data', (bytes: Buffer) => {
    if (!hasFinish && bytes.includes(FINISH)) {
      hasFinish = true;
      late(performance.now() - written.get(call)!);
      written.delete(call);
    }
    tail = (tail + bytes.toString('latin1', Math.max(0, bytes.length - 5))).slice(-5);
    if (hasFinish && tail === '0\r\n\r\n') ask();
  });
}

async function measure(engineUrl: string, wait: string): Promise<number[]> {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
  writeTokenizer(folder);
  const options = ['--disable-health-check', '--tokenizer-path', folder, '--plugin', 'radix-tree:{"verify":false}'];
  options.push('--data-dir', join(folder, 'data'), '--store-wait', wait, '--worker-urls', engineUrl);
  const { child, port } = await startRouter(options);
  const late: number[] = [];
  let isMeasured = false;
  let isOver = false;
  for (let i = 0; i < STREAMS; i++) {
    // Spread, so that streams end one after the other.
    setTimeout(
      () =>
        client(
          port,
          (ms) => isMeasured && late.push(ms),
          () => isOver,
        ),
      (i * EVENTS * EVENT_MS) / STREAMS,
    );
  }
  await new Promise((resolve) => setTimeout(resolve, WARM_UP_MS));
  isMeasured = true;
  await new Promise((resolve) => setTimeout(resolve, MEASURED_MS));
  isOver = true;
  child.kill('SIGKILL');
  await new Promise((resolve) => child.once('exit', resolve));
  rmSync(folder, { recursive: true, force: true });
  return late.toSorted((a, b) => a - b);
}

const at = (sorted: readonly number[], part: number): string =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!.toFixed(1);

engine.listen(0, '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
  for (let round = 0; round < ROUNDS; round++) {
    for (const wait of ['off', 'written', 'synced']) {
      const late = await measure(url, wait);
      process.stdout.write(`${wait}: ${late.length} turns, median ${at(late, 0.5)} ms, p99 ${at(late, 0.99)} ms\n`);
    }
  }
  process.exit(0);
});
