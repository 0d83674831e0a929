// CPU time of the router for a poll of a Tinker result that is not there yet (answered at once), and for one that fetches a result:
// npm run bench -- tinker-polls [polls] [connections]
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { startSimEngine } from '../../simulator/src/engine.ts';
import { machine } from '../machine.ts';
import { cpuMicroseconds, processTree, readCpu } from '../proc.ts';
import { startRouter } from '../router.ts';

const [polls = 20_000, connections = 50] = process.argv.slice(2).map(Number);
const engine = await startSimEngine({ kind: 'vllm', timeScale: 0 });
const options = ['--tinker', '--tinker-poll-secs', '0.01', '--worker-urls', engine.url];
const { child: router, url } = await startRouter(options);
const agent = new Agent({ keepAlive: true, maxSockets: connections });

/** As the SDK asks. */
async function call(path: string, body: object): Promise<{ status: number; text: string }> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/x-protobuf, application/json',
    'x-api-key': 'tml-dummy',
  };
  const asked = request(`${url}/api/v1${path}`, { method: 'POST', agent, headers });
  asked.end(JSON.stringify(body));
  const [response] = (await once(asked, 'response')) as [import('node:http').IncomingMessage];
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  return { status: response.statusCode!, text: Buffer.concat(parts).toString() };
}

const json = async (path: string, body: object) => JSON.parse((await call(path, body)).text) as Record<string, unknown>;

async function sample(): Promise<unknown> {
  const prompt = { chunks: [{ type: 'encoded_text', tokens: [1, 2, 3] }] };
  return (await json('/asample', { base_model: 'sim', prompt, sampling_params: { max_tokens: 100 } }))['request_id'];
}

async function measure(name: string, id: unknown, status: number): Promise<void> {
  const round = async (count: number): Promise<void> => {
    let left = count;
    const one = async (): Promise<void> => {
      while (left-- > 0) {
        const answer = await call('/retrieve_future', { request_id: id });
        if (answer.status !== status) throw new Error(`${answer.status} ${answer.text}`);
      }
    };
    await Promise.all(Array.from({ length: connections }, one));
  };
  await round(polls / 4);
  const before = readCpu(processTree(router.pid!));
  await round(polls);
  const us = cpuMicroseconds(before, readCpu(processTree(router.pid!)));
  console.log(`${name}: ${(us / polls).toFixed(0)} µs of CPU`);
}

while (engine.stats().requests === 0)
  await call('/asample', {
    base_model: 'sim',
    prompt: { chunks: [{ tokens: [1] }] },
    sampling_params: { max_tokens: 1 },
  });
console.log(machine());
const done = await sample();
while ((await call('/retrieve_future', { request_id: done })).status !== 200);
await measure('poll that fetches a result of 100 tokens', done, 200);
await engine.core.pause('keep');
await measure('poll that waits and gets 408', await sample(), 408);
router.kill();
await engine.close();
process.exit();
