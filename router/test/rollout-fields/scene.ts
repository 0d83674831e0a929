import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import { expertsOf } from '../../../simulator/src/model/experts.ts';
import { contextOf } from '../../../simulator/src/model/sampler.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';

export const KINDS = ['vllm', 'sglang'] as const;
export type Kind = (typeof KINDS)[number];

export interface Entry {
  readonly token: string | null;
  readonly token_id: number;
  readonly logprob: number | null;
  readonly sampling_logprob: number | null;
  readonly bytes: readonly number[] | null;
  readonly text_offset: number;
  readonly top_logprobs: readonly { readonly token: string; readonly token_id?: number; readonly logprob: number }[];
  readonly routing_matrix?: string;
}

export interface Choice {
  readonly index: number;
  readonly text?: string;
  readonly message?: { readonly role: string; readonly content: string };
  readonly delta?: { readonly role?: string; readonly content?: string };
  readonly logprobs: { readonly content: readonly Entry[]; readonly tokens?: readonly string[] } | null;
  readonly finish_reason: string | null;
  readonly token_ids?: readonly number[];
  readonly prompt_token_ids?: readonly number[];
  readonly raw_output?: {
    readonly completion: string;
    readonly prompt_fragments: readonly unknown[];
    readonly prompt_token_ids: readonly number[];
    readonly completion_token_ids: readonly number[];
    readonly completion_logprobs?: { readonly content: readonly Entry[] };
  };
}

export interface Answer {
  readonly choices: readonly Choice[];
  readonly prompt_token_ids?: readonly number[];
  readonly usage?: { readonly completion_tokens: number };
  readonly perf_metrics?: Readonly<Record<string, number>>;
  readonly error?: { readonly message: string; readonly code: string };
  readonly [member: string]: unknown;
}

/** What a client has of a choice, whether its response was streamed or not. */
export interface Whole {
  readonly text: string;
  readonly content: readonly Entry[];
  readonly tokenIds: readonly number[];
  readonly promptIds: readonly number[];
  readonly raw: Choice['raw_output'] | undefined;
  readonly finish: string | null;
}

export interface FieldsScene {
  readonly router: Router;
  readonly engine: SimEngine;
  post(path: string, body: object | string): Promise<{ status: number; text: string; type: string }>;
  /** A response with status 200. */
  ask(path: string, body: object): Promise<Answer>;
  /** The chunks of a stream. */
  stream(path: string, body: object): Promise<Answer[]>;
  /** Streamed or not, the first choice (or another one). */
  whole(path: string, body: object, isStream: boolean, index?: number): Promise<Whole>;
  /** The matrix of the token at a position, from the engine's model. */
  truth(ids: readonly number[], position: number): number[];
}

export const MOE = { experts: 64, layers: 5, denseLayers: 2, expertsPerToken: 3 };

export async function startFields(
  t: TestContext,
  kind: Kind,
  {
    sim = {},
    options = {},
    router: more = {},
  }: { sim?: Partial<SimOptions>; options?: object; router?: RouterOptions } = {},
): Promise<FieldsScene> {
  const engine = await startSimEngine({ kind, timeScale: 0, meanOutputTokens: 0, ...MOE, ...sim });
  t.after(() => engine.close());
  const own = { engine: kind, layers: engine.core.options.layers, moeLayers: '2-4', ...options };
  const plugin = [`rollout-fields:${JSON.stringify(own)}`];
  const router = await startTestRouter(t, { workerUrls: [engine.url], plugin, ...more });

  const post: FieldsScene['post'] = async (path, body) => {
    const sent = typeof body === 'string' ? body : JSON.stringify({ model: 'sim', ...body });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(router.url + path, { method: 'POST', headers, body: sent });
    return { status: response.status, text: await response.text(), type: response.headers.get('content-type') ?? '' };
  };
  const ask: FieldsScene['ask'] = async (path, body) => {
    const { status, text } = await post(path, body);
    assert.equal(status, 200, text);
    return JSON.parse(text) as Answer;
  };
  const stream: FieldsScene['stream'] = async (path, body) => {
    const { status, text, type } = await post(path, { ...body, stream: true });
    assert.equal(status, 200, text);
    assert.match(type, /^text\/event-stream/);
    assert.ok(text.endsWith('data: [DONE]\n\n'), text.slice(-200));
    return chunksIn(text).slice(0, -1);
  };
  return {
    router,
    engine,
    post,
    ask,
    stream,
    async whole(path, body, isStream, index = 0) {
      const answers = isStream ? await stream(path, body) : [await ask(path, body)];
      return joined(answers, index);
    },
    truth(ids, position) {
      const view = engine.core.scheduler.sampler.view(contextOf(ids.slice(0, position)));
      const { layers, denseLayers, expertsPerToken } = engine.core.options;
      const all = expertsOf(view, engine.core.options);
      assert.equal(all.length, layers * expertsPerToken);
      return all.slice(denseLayers * expertsPerToken);
    },
  };
}

/** The chunks of a stream's text; [DONE] is null. */
export const chunksIn = (text: string): Answer[] =>
  text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => (event === 'data: [DONE]' ? null : (JSON.parse(event.slice(6)) as Answer)))
    .filter((chunk, i, all) => chunk !== null || i === all.length - 1) as Answer[];

function joined(answers: readonly Answer[], index: number): Whole {
  const choices = answers.flatMap((answer) => answer.choices.filter((choice) => choice.index === index));
  return {
    text: choices.map((choice) => choice.text ?? choice.message?.content ?? choice.delta?.content ?? '').join(''),
    content: choices.flatMap((choice) => choice.logprobs?.content ?? []),
    tokenIds: choices.flatMap((choice) => choice.token_ids ?? []),
    promptIds: answers
      .flatMap((answer) => answer.prompt_token_ids ?? [])
      .concat(choices.flatMap((c) => c.prompt_token_ids ?? [])),
    raw: choices.at(-1)?.raw_output,
    finish: choices.at(-1)?.finish_reason ?? null,
  };
}

export const matrixOf = ({ routing_matrix: base64 }: Entry): number[] => [...Buffer.from(base64!, 'base64')];
