// npm run bench -- event-loop [--explain] [--input=part of a name] [setup...]: the longest time for which inputs
// within the limits block the router's event loop; also the CPU time of the thread in that turn (in the rest it waited
// for a core or for V8's helper threads), the share of garbage collection, and the longest block of an idle process.
// `--explain`: where the longest turn was spent.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { endsWithUs } from '../child.ts';
import { startRouter } from '../router.ts';
import { type Input, answered, changed, of, plain, streamed } from './inputs.ts';
import type { Asked, Longest } from './probe.ts';
import { setups } from './setups.ts';

const RUNS = 5;

function send(port: number, { name, path, body, chunkBytes, status, answerBytes }: Input): Promise<void> {
  if (chunkBytes > 0) return sendChunks(port, path, body!, chunkBytes);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const method = body === null ? 'GET' : 'POST';
  const headers = {
    'content-type': 'application/json',
    'content-length': body?.length ?? 0,
    'x-bytes': answerBytes ?? 0,
    // Makes a session of a plain chat. The thread would take a minute to read megabytes into a session.
    ...(answerBytes === undefined ? {} : { 'x-session-id': 'bench' }),
  };
  const asked = request({ host: '127.0.0.1', port, path, method, headers }, (answer) => {
    if (answer.statusCode !== status) reject(new Error(`${name}: ${answer.statusCode}`));
    answer.resume().on('end', resolve);
  });
  asked.on('error', reject);
  asked.end(body);
  return promise;
}

/** node:http would take minutes for chunks of one byte. */
async function sendChunks(port: number, path: string, body: Buffer, chunkBytes: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  const headers = 'host: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close';
  socket.write(`POST ${path} HTTP/1.1\r\n${headers}\r\n\r\n`);
  const end = Buffer.from('\r\n');
  for (let at = 0; at < body.length;) {
    const parts: Buffer[] = [];
    for (let bytes = 0; bytes < 65_536 && at < body.length; bytes += chunkBytes) {
      const chunk = body.subarray(at, at + chunkBytes);
      parts.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, end);
      at += chunk.length;
    }
    if (!socket.write(Buffer.concat(parts))) await once(socket, 'drain');
  }
  socket.write('0\r\n\r\n');
  const [first] = (await once(socket, 'data')) as [Buffer];
  if (!first.toString('latin1').startsWith('HTTP/1.1 200 ')) throw new Error(first.toString('latin1'));
  socket.destroy();
}

const withProbe = ['--import', join(import.meta.dirname, 'probe.ts')];

async function longest(child: ChildProcess, explains = false): Promise<Longest> {
  child.send({ explains } satisfies Asked);
  const [answer] = (await once(child, 'message')) as [Longest];
  return answer;
}

const sorted = (numbers: readonly number[]): string[] => {
  const [best = 0, , median = 0, , most = 0] = numbers.toSorted((a, b) => a - b);
  return [best, median, most].map((ms) => ms.toFixed(1));
};

/** An engine of any kind: the responses to the router's own requests, and a response for all other paths. */
const says: Readonly<Record<string, string>> = {
  '/health': '',
  '/v1/models': '{"data":[{"id":"m"}]}',
  '/model_info': '{"model_path":"m"}',
  '/server_info': '{"version":"0.5.23"}',
};
const answers = new Map<number, string>();
/** With logprobs of the prompt in the forms of both kinds of engines. */
function answerOf(bytes: number): string {
  let answer = answers.get(bytes);
  if (answer === undefined) {
    const rows = (row: string): string =>
      `[${Array.from({ length: bytes / 2 / (row.length + 1) }, () => row).join(',')}]`;
    const ofSglang = `"input_token_logprobs":${rows('[-1.25,12345,null]')}`;
    const ofVllm = `{"prompt_logprobs":${rows('{"12345":{"logprob":-1.25,"rank":1,"decoded_token":"a"}}')}}`;
    const params = '"kv_transfer_params":{"remote_engine_id":"e"}';
    answer = `{"text":"","meta_info":{"id":"x",${ofSglang}},"choices":[${ofVllm}],${params}}`;
    answers.set(bytes, answer);
  }
  return answer;
}
/** The last event of a chat's stream, with routed experts. */
function chatEventOf(bytes: number): string {
  const experts = `"routed_experts":"${'AbCd'.repeat(bytes / 4)}","output_ids":[[300,301]]`;
  return `{"id":"x","created":1,"model":"m","choices":[],"sglext":{${experts}}}`;
}
const chatEvent =
  '{"id":"x","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}';
function streamOf(path: string, bytes: number): string {
  const events = path === '/v1/chat/completions' ? [chatEvent, chatEventOf(bytes)] : [answerOf(0), answerOf(bytes)];
  return [...events, '[DONE]'].map((data) => `data: ${data}\n\n`).join('');
}
let failures = 0;
const startEngine = async (fails: boolean): Promise<string> => {
  const server = createServer((asked, reply) => {
    const path = asked.url!.split('?')[0]!;
    let isStream = false;
    asked.once('data', (part: Buffer) => (isStream = /"stream":\s*true/.test(part.toString('latin1'))));
    asked.resume().on('end', () => {
      if (asked.method === 'GET') return reply.writeHead(says[path] === undefined ? 404 : 200).end(says[path]);
      if (fails) failures++;
      const bytes = Number(asked.headers['x-bytes'] ?? 0);
      return reply
        .writeHead(fails ? 503 : 200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' })
        .end(isStream ? streamOf(path, bytes) : answerOf(bytes));
    });
  });
  server.listen(0, '127.0.0.1').unref();
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
};

const engines = [await startEngine(false), await startEngine(true), await startEngine(false)];
const idle = spawn(process.execPath, [...withProbe, '--eval', 'process.channel.ref()'], {
  stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
});
endsWithUs(idle);
const words = process.argv.slice(2);
const explains = words.includes('--explain');
const inputPart = words.find((word) => word.startsWith('--input='))?.slice(8) ?? '';
const named = words.filter((word) => !word.startsWith('--'));
const columns = ['setup', 'input', 'best ms', 'median', 'most', 'idle process, most'];
columns.push('at work, best', 'median', 'most', 'collector in that', ...(explains ? ['where'] : []));
process.stdout.write(`| ${columns.join(' | ')} |\n|${' --- |'.repeat(columns.length)}\n`);
for (const setup of setups.filter(({ name }) => named.length === 0 || named.includes(name))) {
  const { child, port } = await startRouter(setup.args(engines), withProbe);
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  for (const input of setup.inputs({ plain, changed, answered, streamed, of })) {
    if (!input.name.includes(inputPart)) continue;
    const runs: Longest[] = [];
    const idleMs: number[] = [];
    for (let i = 0; i < RUNS; i++) {
      await Promise.all([longest(child, explains), longest(idle)]);
      await send(port, input);
      runs.push(await longest(child));
      idleMs.push((await longest(idle)).ms);
    }
    const [wall, cpu] = [runs.map(({ ms }) => ms), runs.map(({ cpuMs }) => cpuMs)];
    const most = runs.toSorted((a, b) => b.cpuMs - a.cpuMs)[0]!;
    const cells = [setup.name, input.name, ...sorted(wall), sorted(idleMs)[2], ...sorted(cpu), most.gcMs.toFixed(1)];
    process.stdout.write(`| ${[...cells, ...(explains ? [most.where] : [])].join(' | ')} |\n`);
  }
  if (setup.fails === true && failures === 0) throw new Error('nothing was tried again');
  child.kill('SIGKILL');
}
idle.kill('SIGKILL');
