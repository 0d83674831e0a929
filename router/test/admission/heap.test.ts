import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { policyModule } from '../harness/policy-module.ts';
import { until } from '../harness/within.ts';
import { metric } from './metric.ts';

/** Keeps a megabyte of V8's heap for each request to /keep; SIGUSR2 lets go of all. */
const keeper = `({ builtIn }) => {
  let kept = [];
  process.on('SIGUSR2', () => { kept = []; });
  const inner = builtIn('least_inflight');
  return { ...inner, choose(x, workers) {
    if (x.path === '/keep') kept.push(new Array(131072).fill(1.5));
    return inner.choose(x, workers);
  } };
}`;

test('close to the end of its memory the router takes nothing new, and does not die; streams that are open go on', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.target === '/keep' && asked.answer('1') });
  const args = [
    '--port',
    '0',
    '--prometheus-port',
    '0',
    '--worker-urls',
    engine.url,
    '--policy',
    policyModule(t, keeper),
  ];
  const router = turnout(t, args, { NODE_OPTIONS: '--max-old-space-size=128' });
  const url = (await router.says(/listening on (http:[^" ]+)/))[1]!;
  const stream = await connectClient(t, url);
  await until('it serves', async () => (await send(t, url, request('GET', '/keep'))).status === 200);
  stream.write(request('POST', '/v1/completions', '{}'));
  await until('the stream is at the engine', () => engine.requests.at(-1)?.target === '/v1/completions');
  const asked = engine.requests.at(-1)!;
  asked.beginStream();
  await stream.read('\r\n\r\n');

  // If the router dies, the error contains its output.
  const ask = (method: string, path: string) =>
    send(t, url, request(method, path)).catch((error: unknown) => {
      throw new Error(router.output(), { cause: error });
    });
  let refused = await ask('GET', '/keep');
  for (let i = 0; i < 100 && refused.status === 200; i++) {
    refused = await ask('GET', '/keep');
    // The router looks four times a second.
    if (i > 50) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  deepEqual([refused.status, refused.get('x-turnout-error'), refused.get('retry-after')], [503, 'overloaded', '5']);

  equal((await ask('GET', '/health')).status, 200);
  asked.connection.write(chunk('data: still here\n\n'));
  await stream.read('data: still here\n\n');
  asked.connection.write(`${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  await stream.read('0\r\n\r\n');
  equal((await metric({ metricsUrl: `${url}/metrics` }, 'turnout_shed_total{reason="heap"}')) > 0, true);

  router.child.kill('SIGUSR2');
  await until('it takes work again', async () => (await ask('GET', '/keep')).status === 200);
});
