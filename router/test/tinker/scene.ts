import { equal } from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

export const PROMPT = [1001, 1002, 1003, 1004];

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  readonly json: Record<string, unknown>;
}

/** Calls the Tinker API as the SDK does, with what it sends under the test's control. */
export class TinkerClient {
  readonly url: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(url: string, headers: Readonly<Record<string, string>> = {}) {
    this.url = url;
    this.#headers = headers;
  }

  /** @param body JSON, or its text where numbers must keep their digits */
  async call(path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Reply> {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(`${this.url}/api/v1${path}`, {
      headers: { 'content-type': 'application/json', ...this.#headers, ...headers },
      ...(body === undefined ? {} : { method: 'POST', body: text }),
    });
    const bytes = Buffer.from(await response.arrayBuffer());
    const isJson = response.headers.get('content-type')?.includes('json') === true;
    return {
      status: response.status,
      headers: response.headers,
      bytes,
      json: isJson ? (JSON.parse(bytes.toString()) as Record<string, unknown>) : {},
    };
  }

  /** As `call`, for what must succeed. */
  async get(
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Record<string, unknown>> {
    const { status, json, bytes } = await this.call(path, body, headers);
    equal(status, 200, `${path}: ${bytes.toString()}`);
    return json;
  }

  async samplingSession(source: object = { base_model: 'sim' }): Promise<string> {
    const { session_id } = await this.get('/create_session', {
      tags: [],
      sdk_version: '0.38.0',
      type: 'create_session',
    });
    const opened = await this.get('/create_sampling_session', { session_id, sampling_session_seq_id: 0, ...source });
    return String(opened['sampling_session_id']);
  }

  /** Polls as SDK 0.16 does. */
  async result(requestId: unknown): Promise<Record<string, unknown>> {
    for (;;) {
      const { status, json } = await this.call('/retrieve_future', { request_id: requestId });
      if (status !== 408) return { status, ...json };
    }
  }

  /** A whole sample. */
  async sample(body: object): Promise<SampleJson> {
    const { request_id: id } = await this.get('/asample', body);
    const result = await this.result(id);
    equal(result['status'], 200, JSON.stringify(result));
    return result as unknown as SampleJson;
  }
}

export interface SampleJson {
  readonly sequences: readonly {
    readonly tokens: readonly number[];
    readonly logprobs: readonly number[];
    readonly stop_reason: string;
  }[];
  readonly prompt_logprobs: readonly (number | null)[] | null;
  readonly topk_prompt_logprobs: readonly (readonly [number, number][] | null)[] | null;
  readonly error?: string;
  readonly category?: string;
}

/** What a client asks for. */
export const asked = (session: string, seqId: number, more: object = {}): object => ({
  sampling_session_id: session,
  seq_id: seqId,
  num_samples: 1,
  prompt: { chunks: [{ type: 'encoded_text', tokens: PROMPT }] },
  sampling_params: { max_tokens: 8, temperature: 1, top_k: -1, top_p: 1, seed: 7 },
  prompt_logprobs: false,
  topk_prompt_logprobs: 0,
  ...more,
});

export interface TinkerScene {
  readonly router: Router;
  readonly engines: readonly SimEngine[];
  readonly client: TinkerClient;
  readonly log: ReturnType<typeof recordedLog>;
}

/**
 * A router with `--tinker` before simulated engines, whose kinds it knows.
 * @param models of the engines, one each; by default all serve `sim`
 */
export async function startTinkerScene(
  t: TestContext,
  kinds: readonly SimOptions['kind'][],
  options: RouterOptions = {},
  { models, ...engineOptions }: Partial<SimOptions> & { readonly models?: readonly string[] } = {},
): Promise<TinkerScene> {
  const engines = await Promise.all(
    kinds.map((kind, i) => {
      const model = models?.[i] ?? 'sim';
      return startSimEngine({ kind, timeScale: 0, model, modelPath: model, ...engineOptions });
    }),
  );
  for (const engine of engines) t.after(() => engine.close());
  const log = recordedLog();
  const router = await startTestRouter(
    t,
    {
      tinker: true,
      policy: 'consistent_hash',
      workerUrls: engines.map(({ url }) => url),
      disableHealthCheck: false,
      ...options,
    },
    { log: log.log },
  );
  await until('the router knows its engines', () =>
    router.fleet.workers.every(({ isHealthy, models }) => isHealthy && models !== null),
  );
  return { router, engines, client: new TinkerClient(router.url), log };
}
