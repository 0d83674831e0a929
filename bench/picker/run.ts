// CPU of the endpoint picker for a decision: a gateway's streams, made here, to `turnout picker`. Prints a row for each way to send bodies.
import { spawn } from 'node:child_process';
import { type ClientDuplexStream, credentials, loadPackageDefinition } from '@grpc/grpc-js';
import {
  BODY_MODE,
  EXTERNAL_PROCESSOR,
  type HeaderValue,
  type ProcessingRequest,
  type ProcessingResponse,
  services,
} from '../../router/src/picker/messages.ts';
import { endsWithUs } from '../child.ts';
import { machine } from '../machine.ts';
import { median } from '../median.ts';
import { cpuMicroseconds, readCpu } from '../proc.ts';

const REQUESTS = Number(process.argv[2] ?? 6_000);
const ROUNDS = Number(process.argv[3] ?? 5);
const AT_ONCE = 100;
const CONNECTIONS = 4;
const SESSIONS = 500;
const WORKERS = 8;

type Stream = ClientDuplexStream<ProcessingRequest, ProcessingResponse>;

interface Client {
  Process(): Stream;
}

const header = (key: string, value: string): HeaderValue => ({ key, rawValue: Buffer.from(value) });

/** A chat of 2 KB. */
const body = Buffer.from(
  JSON.stringify({ model: 'm', user: 'u', messages: [{ role: 'user', content: 'some words '.repeat(180) }] }),
);

/** One request from its headers to the end of its response. */
function processed(client: Client, number: number, mode: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const stream = client.Process();
    let isPlaced = false;
    stream.on('data', ({ requestBody, responseHeaders }: ProcessingResponse) => {
      if (responseHeaders !== undefined) stream.end();
      const isLast = mode === BODY_MODE.none || requestBody?.response.bodyMutation?.streamedResponse?.endOfStream;
      if (isPlaced || isLast !== true) return;
      isPlaced = true;
      stream.write({ responseHeaders: { headers: { headers: [header(':status', '200')] } } });
    });
    stream.on('end', resolve);
    stream.on('error', reject);
    const headers = {
      ':method': 'POST',
      ':path': '/v1/chat/completions',
      ':authority': 'gateway',
      ':scheme': 'http',
      'content-type': 'application/json',
      'content-length': String(body.length),
      'user-agent': 'OpenAI/Python 2.0.0',
      'x-forwarded-for': '10.0.0.1',
      'x-request-id': `request-${number}`,
      'x-session-id': `session-${number % SESSIONS}`,
    };
    stream.write({
      requestHeaders: { headers: { headers: Object.entries(headers).map(([key, value]) => header(key, value)) } },
      protocolConfig: { requestBodyMode: mode },
    });
    if (mode === BODY_MODE.fullDuplex) stream.write({ requestBody: { body, endOfStream: true } });
  });
}

async function measure(policy: string, mode: number): Promise<string> {
  const workers = Array.from({ length: WORKERS }, (_, i) => `http://127.0.0.1:${9_100 + i}`);
  const flags = ['--port=0', '--grpc-port=0', '--grpc-health-port=0', '--metrics-port=0', '--secure-serving=false'];
  const child = spawn(
    process.execPath,
    [
      'router/bin/turnout.js',
      'picker',
      '--worker-urls',
      ...workers,
      '--policy',
      policy,
      '--disable-health-check',
      ...flags,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  endsWithUs(child);
  const address = await new Promise<string>((resolve) => {
    let said = '';
    child.stdout.on('data', (part: Buffer) => {
      said += part.toString();
      const found = /picker listening on ([\d.:]+)/.exec(said)?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  const path = EXTERNAL_PROCESSOR.split('.');
  const found = path.reduce<unknown>(
    (at, name) => (at as Record<string, unknown>)[name],
    loadPackageDefinition(services()),
  );
  const Service = found as new (...given: unknown[]) => Client;
  const options = { 'grpc.use_local_subchannel_pool': 1 };
  const clients = Array.from(
    { length: CONNECTIONS },
    () => new Service(address, credentials.createInsecure(), options),
  );
  const run = async (count: number): Promise<void> => {
    let next = 0;
    const lane = async (): Promise<void> => {
      for (let number = next++; number < count; number = next++)
        await processed(clients[number % CONNECTIONS]!, number, mode);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
  };
  await run(REQUESTS / 2);
  const spent: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const before = readCpu([child.pid!]);
    await run(REQUESTS);
    spent.push(cpuMicroseconds(before, readCpu([child.pid!])) / REQUESTS);
  }
  child.kill();
  const us = median(spent);
  return `${us.toFixed(0)} µs of CPU a decision, all threads: ${Math.round(1e6 / us)} a second on one core`;
}

process.stdout.write(`${machine()}\n`);
for (const [policy, what, mode] of [
  ['consistent_hash', 'headers alone', BODY_MODE.none],
  ['consistent_hash', '2 KB body, full duplex', BODY_MODE.fullDuplex],
  ['rollout', '2 KB body, full duplex', BODY_MODE.fullDuplex],
] as const)
  process.stdout.write(`${policy}, ${what}: ${await measure(policy, mode)}\n`);
process.exit();
