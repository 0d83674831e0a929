import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Router, RouterParts } from '../../src/router.ts';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { type RouterOptions, startTestRouter, untilIdle } from './router.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { until } from './within.ts';

export interface ChatMessage {
  readonly role: string;
  readonly content: string | null;
  readonly [member: string]: unknown;
}

/** What is on record of a session. */
export interface ChatRecord {
  readonly session_id: string;
  readonly records: readonly {
    readonly request: Record<string, unknown>;
    readonly response: ChatAnswer;
    readonly status_code: number;
  }[];
  readonly metadata: {
    readonly accumulated_token_ids: readonly number[];
    readonly tree: {
      readonly turns: readonly { readonly id: string; readonly parent: string | null; readonly drift: unknown }[];
    };
  };
}

export interface ChatAnswer {
  readonly choices: readonly { readonly message: ChatMessage; readonly finish_reason: string }[];
}

export interface ChatScene {
  readonly router: Router;
  readonly engines: readonly SimEngine[];
  /** What the engines really did, in the order in which they ended. */
  readonly log: FinishedRecord[];
  begin(): Promise<string>;
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<{ status: number; text: string }>;
  /** Asks in a session. @returns the answer's message */
  say(session: string, messages: readonly ChatMessage[], more?: object): Promise<ChatMessage>;
  record(session: string): Promise<ChatRecord>;
}

export async function startEngines(
  t: TestContext,
  count: number,
  log: FinishedRecord[],
  options: Partial<SimOptions> = {},
): Promise<SimEngine[]> {
  const engines: SimEngine[] = [];
  for (let i = 0; i < count; i++) {
    const engine = await startSimEngine({
      timeScale: 0,
      variedSampling: true,
      retokenizationDrift: true,
      meanOutputTokens: 12,
      // A name that nobody set would prove nothing.
      weightVersion: '1',
      onFinished: (record) => log.push(record),
      ...options,
    });
    t.after(() => engine.close());
    engines.push(engine);
  }
  return engines;
}

/** A router with chat sessions before simulated engines that it knows already. */
export async function startChatScene(
  t: TestContext,
  {
    kind = 'sglang',
    count = 1,
    sim = {},
    router: routerOptions = {},
    parts = {},
    template,
  }: {
    kind?: SimOptions['kind'];
    count?: number;
    sim?: Partial<SimOptions>;
    router?: RouterOptions;
    parts?: RouterParts;
    /** In place of ChatML. */
    template?: string;
  } = {},
): Promise<ChatScene> {
  const log: FinishedRecord[] = [];
  const engines = await startEngines(t, count, log, { kind, ...sim });
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  if (template !== undefined) writeFileSync(join(tokenizerPath, 'chat_template.jinja'), template);
  const options = {
    workerUrls: engines.map(({ url }) => url),
    tokenizerPath,
    plugin: ['chat-sessions'],
    disableHealthCheck: false,
    // Machines under load: the first request waits for a thread that starts.
    pluginTimeoutMs: 60_000,
    ...routerOptions,
  };
  const router = await startTestRouter(t, options, parts);
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  return sceneOf(router, engines, log);
}

export function sceneOf(router: Router, engines: readonly SimEngine[], log: FinishedRecord[]): ChatScene {
  const post: ChatScene['post'] = async (path, body, headers = {}) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(router.url + path, { method: 'POST', body: text, headers });
    return { status: response.status, text: await response.text() };
  };
  return {
    router,
    engines,
    log,
    post,
    async begin() {
      const { status, text } = await post('/sessions', '');
      assert.equal(status, 200, text);
      return (JSON.parse(text) as { session_id: string }).session_id;
    },
    async say(session, messages, more = {}) {
      const { status, text } = await post(`/sessions/${session}/v1/chat/completions`, {
        model: 'sim',
        messages,
        ...more,
      });
      assert.equal(status, 200, text);
      await untilIdle(router);
      if ((more as { stream?: boolean }).stream === true) return messageOf(text);
      return (JSON.parse(text) as ChatAnswer).choices[0]!.message;
    },
    async record(session) {
      const response = await fetch(`${router.url}/sessions/${session}`);
      assert.equal(response.status, 200);
      return (await response.json()) as ChatRecord;
    },
  };
}

/** The message that a client puts together of a stream. */
export function messageOf(stream: string): ChatMessage {
  assert.ok(stream.endsWith('data: [DONE]\n\n'), stream);
  let content = '';
  for (const event of eventsOf(stream)) {
    for (const { delta } of event.choices as readonly { delta?: { content?: string } }[])
      content += delta?.content ?? '';
  }
  return { role: 'assistant', content };
}

export const eventsOf = (stream: string): Record<string, unknown>[] =>
  stream
    .split('\n\n')
    .map((event) => event.replace(/^data: /, ''))
    .filter((data) => data.startsWith('{'))
    .map((data) => JSON.parse(data) as Record<string, unknown>);

/** The lines of an export as JSON, of one session or of all. */
export async function exportedLines<Line>({ router }: ChatScene, session?: string): Promise<Line[]> {
  await untilIdle(router);
  const which = session === undefined ? '' : `&session=${session}`;
  const text = await (await fetch(`${router.url}/trajectories?format=jsonl${which}`)).text();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}
