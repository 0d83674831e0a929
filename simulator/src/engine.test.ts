import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { Agent, request as post } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startSimEngine, type SimEngine } from './engine.ts';
import type { SimOptions } from './sim-options.ts';
import type { FinishedRecord } from './model/sequence.ts';
import { spawnSimEngine } from './spawn.ts';

/** An engine whose sequences report themselves; ended with the test. */
async function withEngine(
  options: Partial<SimOptions>,
  use: (engine: SimEngine, finished: () => Promise<FinishedRecord>) => Promise<void>,
): Promise<void> {
  const records: FinishedRecord[] = [];
  const waiters: ((record: FinishedRecord) => void)[] = [];
  const onFinished = (record: FinishedRecord): void => {
    const waiter = waiters.shift();
    if (waiter) waiter(record);
    else records.push(record);
  };
  const finished = (): Promise<FinishedRecord> => {
    const record = records.shift();
    return record ? Promise.resolve(record) : new Promise((resolve) => waiters.push(resolve));
  };
  const engine = await startSimEngine({ ...options, onFinished });
  try {
    await use(engine, finished);
  } finally {
    await engine.close();
  }
}

const endless = { max_new_tokens: 20_000, ignore_eos: true };

function request(engine: SimEngine, body: object): Socket {
  const text = JSON.stringify(body);
  const socket = connect(engine.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(`POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  return socket;
}

async function isRunning(engine: SimEngine): Promise<void> {
  while (engine.stats().running === 0) await new Promise((resolve) => setImmediate(resolve));
}

test('a client that leaves frees its sequences at once, streaming or not', async () => {
  await withEngine({}, async (engine, finished) => {
    for (const stream of [true, false]) {
      const socket = request(engine, {
        text: 'hello there '.repeat(50),
        stream,
        sampling_params: { ...endless, n: 3 },
      });
      if (stream) await once(socket, 'data');
      else await isRunning(engine);
      assert.ok(engine.stats().kvTokensUsed > 0);
      socket.destroy();
      for (let i = 0; i < 3; i += 1) assert.equal((await finished()).finish.type, 'abort');
      const { running, waiting, kvTokensUsed } = engine.stats();
      assert.deepEqual({ running, waiting, kvTokensUsed }, { running: 0, waiting: 0, kvTokensUsed: 0 });
    }
    assert.equal(engine.stats().aborted, 6);
  });
});

test('an abort by rid ends the request with the tokens it has; an unknown rid is no error', async () => {
  await withEngine({}, async (engine) => {
    const abort = (body: object): Promise<Response> =>
      fetch(`${engine.url}/abort_request`, { method: 'POST', body: JSON.stringify(body) });
    const answer = fetch(`${engine.url}/generate`, {
      method: 'POST',
      body: JSON.stringify({ rid: 'mine', text: 'a', sampling_params: endless }),
    });
    await isRunning(engine);
    assert.equal((await abort({ rid: 'other' })).status, 200);
    assert.equal(engine.stats().running, 1);
    assert.equal(await (await abort({ rid: 'mine' })).text(), '');
    const { output_ids: ids, meta_info: info } = (await (await answer).json()) as {
      output_ids: number[];
      meta_info: { finish_reason: object; completion_tokens: number };
    };
    assert.deepEqual(info.finish_reason, { type: 'abort', message: 'Aborted', status_code: null, err_type: null });
    assert.equal(ids.length, info.completion_tokens);
  });
});

test('abort_all ends a stream properly', async () => {
  await withEngine({}, async (engine) => {
    const response = await fetch(`${engine.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt: 'a', max_tokens: 20_000, ignore_eos: true, stream: true }),
    });
    await isRunning(engine);
    await fetch(`${engine.url}/abort_request`, { method: 'POST', body: '{"abort_all":true}' });
    const text = await response.text();
    assert.match(text, /"finish_reason":"abort"/);
    assert.ok(text.endsWith('data: [DONE]\n\n'));
  });
});

test('a swap under a stream shows in its spans, and in its tokens from there on', async () => {
  await withEngine({ timeScale: 0.2 }, async (engine, finished) => {
    const post = (path: string, body: object): Promise<Response> =>
      fetch(engine.url + path, { method: 'POST', body: JSON.stringify(body) });
    const sampling = { max_new_tokens: 400, ignore_eos: true, temperature: 0 };
    const socket = request(engine, { text: 'a', stream: true, sampling_params: sampling });
    await once(socket, 'data');
    await post('/pause_generation', { mode: 'in_place' });
    // Measured on 0.5.23: refused for the cache's sake, and yet the weights have changed.
    const update = await post('/update_weights_from_disk', { model_path: '/b', weight_version: 'b' });
    assert.equal(update.status, 400);
    await post('/continue_generation', {});
    const { weightVersions, outputIds } = await finished();
    socket.destroy();
    const [first, second] = weightVersions;
    assert.deepEqual([first!.version, second!.version, second!.end], ['default', 'b', 400]);
    assert.equal(first!.end, second!.start);
    const plain = (await (await post('/update_weights_from_disk', { model_path: 'sim' })).json()) as object;
    assert.ok(plain);
    const old = (await (await post('/generate', { text: 'a', sampling_params: sampling })).json()) as {
      output_ids: number[];
    };
    assert.deepEqual(outputIds.slice(0, first!.end), old.output_ids.slice(0, first!.end));
    assert.notDeepEqual(outputIds, old.output_ids);
  });
});

test('model time is kept: no answer is early', async () => {
  await withEngine({ timeScale: 1 }, async (engine, finished) => {
    const body = JSON.stringify({ text: 'a', sampling_params: { max_new_tokens: 60, ignore_eos: true } });
    await (await fetch(`${engine.url}/generate`, { method: 'POST', body })).json();
    const record = await finished();
    const tookMs = record.finishedMs - record.arrivedMs;
    const modelMs = 60 * 7.03;
    assert.ok(tookMs >= modelMs, `${tookMs} ms`);
  });
});

test('kill resets every connection and refuses new ones', async () => {
  const engine = await startSimEngine();
  const socket = request(engine, { text: 'a', stream: true, sampling_params: endless });
  await once(socket, 'data');
  const failed = once(socket, 'error') as Promise<[NodeJS.ErrnoException]>;
  socket.resume();
  await engine.kill();
  assert.equal((await failed)[0].code, 'ECONNRESET');
  const refused = connect(engine.port, '127.0.0.1');
  const [error] = (await once(refused, 'error')) as [NodeJS.ErrnoException];
  assert.equal(error.code, 'ECONNREFUSED');
});

test('a spawned engine serves, logs, reports, and dies with any signal', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turnout-sim-'));
  try {
    const logPath = join(folder, 'finished.jsonl');
    const engine = await spawnSimEngine({ timeScale: 0, kind: 'vllm', logPath });
    const body = '{"prompt":[1,2],"max_tokens":3,"ignore_eos":true}';
    const answer = await fetch(`${engine.url}/v1/completions`, { method: 'POST', body });
    assert.equal(answer.status, 200);
    assert.equal((await engine.stats()).requests, 1);
    await engine.kill('SIGKILL');
    await assert.rejects(fetch(engine.url));
    const record = JSON.parse(await readFile(logPath, 'utf8')) as FinishedRecord;
    assert.deepEqual([record.inputIds, record.outputIds.length, record.finish], [[1, 2], 3, { type: 'length' }]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('at zero model time it answers thousands of requests, and says what one costs', async (t) => {
  const engine = await spawnSimEngine({ timeScale: 0 });
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const ask = async (count: number): Promise<number> => {
    const before = (await engine.stats()).processCpuMs;
    const body = JSON.stringify({
      input_ids: Array.from({ length: 64 }, (_, i) => 300 + i),
      sampling_params: { max_new_tokens: 16, temperature: 0, ignore_eos: true },
    });
    const one = (): Promise<void> =>
      new Promise((resolve, reject) => {
        const call = post(`${engine.url}/generate`, { agent, method: 'POST' }, (response) => {
          response.resume().on('end', resolve);
        });
        call.on('error', reject).end(body);
      });
    await Promise.all(Array.from({ length: count }, one));
    return ((await engine.stats()).processCpuMs - before) / count;
  };
  try {
    await ask(1000); // compiled code first
    const cpuMs = await ask(2000);
    assert.equal((await engine.stats()).requests, 3000);
    t.diagnostic(`${Math.round(cpuMs * 1000)} µs of CPU a request: ${Math.round(1000 / cpuMs)} requests/s on a core`);
  } finally {
    agent.destroy();
    await engine.kill();
  }
});

test('impossible options are refused', async () => {
  await assert.rejects(startSimEngine({ kvTokens: 8 }), /kvTokens/);
  await assert.rejects(startSimEngine({ timeScale: -1 }), /timeScale/);
  await assert.rejects(startSimEngine({ maxRunning: 0 }), /maxRunning/);
});
