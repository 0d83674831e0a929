import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { connectClient, request, send } from './client.ts';
import { type RouterOptions, startTestRouter, untilIdle } from './router.ts';
import { SNAPSHOTS, sceneOf, startSims } from './swap-scene.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { startTraceCollector } from './trace-collector.ts';
import { until } from './within.ts';

/** A router with every part on, in front of simulated engines. */
export interface BusyFleet {
  readonly router: Router;
  /** Traffic that gives nearly every metric a value: streams of sessions, queues, failures, retries, refusals, a weight swap. */
  work(): Promise<void>;
  page(path?: string): Promise<string>;
}

const PATH = '/v1/chat/completions';
const SESSIONS = 6;

export async function startBusyFleet(t: TestContext, options: RouterOptions = {}): Promise<BusyFleet> {
  const engines = await startSims(t, ['vllm', 'sglang', 'vllm'], { timeScale: 0.02, weightLoadMs: 10_000 });
  const collector = await startTraceCollector(t);
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    disableHealthCheck: false,
    policy: 'rollout',
    plugin: ['radix-tree', 'chat-sessions', 'rollout-fields'],
    tokenizerPath,
    resume: 'on',
    tinker: true,
    swapSnapshots: SNAPSHOTS,
    otlpTracesEndpoint: collector.url,
    maxConcurrentRequests: 8,
    workerMaxInflight: 2,
    queueSize: 64,
    cbFailureThreshold: 2,
    cbTimeoutDurationSecs: 0.05,
    pluginTimeoutMs: 60_000,
    ...options,
  });
  await until('engines are known', () => router.fleet.workers.every(({ models }) => models !== null));
  let step = 0;

  const page = async (path = '/metrics'): Promise<string> => (await fetch(router.url + path)).text();

  const chat = async (session: string, signal: AbortSignal | null = null): Promise<void> => {
    const prompt = `session ${session} ${'asks a question that is long enough for a block of tokens '.repeat(20)}`;
    const body = {
      model: 'sim',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 24,
      messages: [{ role: 'user', content: prompt }],
    };
    const headers = { 'x-session-id': session, 'content-type': 'application/json' };
    const response = await fetch(router.url + PATH, { method: 'POST', headers, body: JSON.stringify(body), signal });
    await response.text();
  };

  const work = async (): Promise<void> => {
    const names = Array.from({ length: SESSIONS }, (_, i) => `s${i}`);
    await Promise.all([...names, ...names, ...names].map((session) => chat(session)));
    // The worker of a session fails: the session moves. New sessions fail at it until its breaker opens.
    for (const engine of engines.slice(0, 2)) engine.core.faults.add(PATH, 'fail_before', Infinity);
    for (const session of names) await chat(session);
    let more = 0;
    await until('a breaker has opened', async () => {
      await chat(`more${more++}`);
      return (await page()).includes('turnout_worker_breaker_transitions_total{');
    });
    for (const engine of engines) engine.core.faults.forget();
    const leaving = new AbortController();
    const left = chat('s0', leaving.signal).catch(() => {});
    await until('it is at an engine', () => router.fleet.inFlight.some((count) => count > 0));
    leaving.abort();
    await left;
    const huge = JSON.stringify({ model: 'none', messages: [] });
    await send(t, router.url, request('POST', PATH, huge));
    // Other routers have one endpoint for both paths.
    for (const path of ['/rerank', '/v1/rerank']) await send(t, router.url, request('POST', path, '{"model":"sim"}'));
    const client = await connectClient(t, router.url);
    client.write('POST / HTTP/1.1\r\n\r\n');
    await client.read('400');
    await untilIdle(router);
    // No engine takes new requests while it loads: they are held.
    const scene = await sceneOf(router, engines);
    await scene.post('/swap', { identity: `step-${++step}` });
    await chat('held');
    await scene.untilOver();
  };
  return { router, work, page };
}
