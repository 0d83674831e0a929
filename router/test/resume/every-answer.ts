import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { gzipSync } from 'node:zlib';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import type { Router } from '../../src/router.ts';
import { moduleOf } from '../harness/plugin-module.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

/** A request of a client, and what it has to get. */
export interface Case {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  /** null: none. */
  readonly body: string | null;
  readonly status: number;
  /** The payload, decompressed. */
  readonly expected: string;
}

interface Said {
  readonly status?: number;
  readonly type?: string;
  /** With all of them in one part and no `isChunked`, the response has a content-length. */
  readonly parts: readonly string[];
  readonly isChunked?: boolean;
  readonly isUntilClose?: boolean;
  readonly isCompressed?: boolean;
}

const JSON_TYPE = 'application/json';
const EVENTS = 'text/event-stream';

const whole: Readonly<Record<string, object>> = {
  '/generate': { text: ' a', output_ids: [7], meta_info: { id: 'x', finish_reason: { type: 'length', length: 1 } } },
  '/v1/completions': { id: 'x', choices: [{ index: 0, text: ' a', finish_reason: 'length' }] },
  '/v1/chat/completions': { id: 'x', choices: [{ index: 0, message: { content: ' a' }, finish_reason: 'length' }] },
};

const events = ['data: {"id":"x","choices":[]}\n\n', 'data: {"id":"x","usage":{}}\n\n', 'data: [DONE]\n\n'];

/** How engines frame what they say. */
function answersOf(path: string): Readonly<Record<string, Said>> {
  const json = JSON.stringify(whole[path]);
  return {
    'a content-length': { parts: [json] },
    chunks: { parts: [json.slice(0, 9), json.slice(9)], isChunked: true },
    'the end of its connection': { parts: [json], isUntilClose: true },
    'gzip and a content-length': { parts: [json], isCompressed: true },
    'gzip in chunks': { parts: [json], isCompressed: true, isChunked: true },
    nothing: { parts: [''] },
    'no chunk': { parts: [], isChunked: true },
    '204': { status: 204, parts: [] },
    '304': { status: 304, parts: [] },
    'a refusal': { status: 400, parts: ['{"error":{"message":"no"}}'] },
    'a refusal in chunks': { status: 422, parts: ['{"error"', ':{}}'], isChunked: true },
    'an error of its own': { status: 500, parts: ['{"error":{"message":"CUDA"}}'] },
    'an error of its own in chunks': { status: 500, parts: ['{"error"', ':{}}'], isChunked: true },
    events: { type: EVENTS, parts: events, isChunked: true },
    'events until the end of its connection': { type: EVENTS, parts: events, isUntilClose: true },
    'events with gzip': { type: EVENTS, parts: events, isCompressed: true, isChunked: true },
    'no event': { type: EVENTS, parts: [], isChunked: true },
    'an error as an event': { type: EVENTS, parts: ['data: {"error":{"code":400}}\n\n'], isChunked: true },
  };
}

/** Generations that can be continued, and those that can't. */
const askings: Readonly<Record<string, object>> = {
  one: {},
  'a stream': { stream: true },
  'two in a stream': { stream: true, n: 2, sampling_params: { n: 2 } },
  'with penalties': { presence_penalty: 1, sampling_params: { presence_penalty: 1 } },
};

const prompts: Readonly<Record<string, object>> = {
  '/generate': { input_ids: [1, 2, 3] },
  '/v1/completions': { prompt: [1, 2, 3] },
  '/v1/chat/completions': { messages: [{ role: 'user', content: 'a' }] },
};

const CONTINUED = { input_ids: [1, 2, 3], sampling_params: { max_new_tokens: 4 }, dies: true };

/** An event of a stream of SGLang that has all so far. */
const event = (ids: readonly number[], promptTokens: number, finish: object | null): string =>
  `data: ${JSON.stringify({
    text: ids.map((id) => `<${id}>`).join(''),
    output_ids: ids,
    meta_info: { finish_reason: finish, prompt_tokens: promptTokens, completion_tokens: ids.length },
  })}\n\n`;

/** Every kind of answer that an engine may give, to each kind of generation. */
export function everyCase(): Case[] {
  const cases: Case[] = [
    { name: 'a GET', method: 'GET', path: '/v1/other', body: null, status: 200, expected: '{}' },
    { name: 'a HEAD', method: 'HEAD', path: '/v1/other', body: null, status: 200, expected: '' },
  ];
  for (const [path, prompt] of Object.entries(prompts)) {
    for (const [asking, more] of Object.entries(askings)) {
      for (const [answer, { status = 200, parts }] of Object.entries(answersOf(path))) {
        cases.push({
          name: `${path}, ${asking}: ${answer}`,
          method: 'POST',
          path,
          body: JSON.stringify({ ...prompt, ...more, answer }),
          status,
          expected: parts.join(''),
        });
      }
    }
  }
  const continued = [[7], [7, 8]].map((ids) => event(ids, 3, null)).join('');
  cases.push({
    name: 'a continued generation',
    method: 'POST',
    path: '/generate',
    body: JSON.stringify({ ...CONTINUED, stream: true }),
    status: 200,
    expected: `${continued}${event([7, 8, 9], 3, { type: 'length', length: 3 })}data: [DONE]\n\n`,
  });
  return cases;
}

/** An engine that gives the answer that its request names. */
async function startAnswering(t: TestContext): Promise<string> {
  const server = createServer((request, response) => void respond(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
  let text = '';
  for await (const part of request) text += String(part);
  if (text === '') {
    response.setHeader('content-type', JSON_TYPE);
    response.end('{}');
    return;
  }
  const asked = JSON.parse(text) as { answer?: string; dies?: boolean; input_ids?: number[] };
  if (asked.dies === true) return generate(asked.input_ids!, response);
  // The router's own questions.
  const {
    status = 200,
    type = JSON_TYPE,
    parts,
    ...framing
  } = asked.answer === undefined ? { status: 404, parts: ['{}'] } : answersOf(request.url!)[asked.answer]!;
  response.statusCode = status;
  if (status !== 204 && status !== 304) response.setHeader('content-type', type);
  if (framing.isUntilClose === true) {
    response.shouldKeepAlive = false;
    response.useChunkedEncodingByDefault = false;
  }
  const bytes = framing.isCompressed === true ? [gzipSync(parts.join(''))] : parts.map((part) => Buffer.from(part));
  if (framing.isCompressed === true) response.setHeader('content-encoding', 'gzip');
  if (framing.isChunked !== true && framing.isUntilClose !== true) {
    response.end(bytes[0]);
    return;
  }
  response.flushHeaders();
  for (const part of bytes) response.write(part);
  response.end();
}

/** The first engine resets its connection in the middle. */
function generate(ids: readonly number[], response: ServerResponse): void {
  response.setHeader('content-type', EVENTS);
  if (ids.length > 3) response.end(`${event([9], 5, { type: 'length', length: 1 })}data: [DONE]\n\n`);
  else response.write(event([7], 3, null) + event([7, 8], 3, null), () => response.socket?.resetAndDestroy());
}

const SAME = `{ name: 'same', create: () => ({
  pathPrefix: '/', appliesTo: () => true, responseEvent: (x, event) => event, responseBody: (x, body) => body }) }`;

/** What stands between an engine and a client, beside `--resume on`. */
export const kinds = ['alone', 'with CORS', 'with a plugin that changes it', 'recorded', 'with all of them'] as const;

type Kind = (typeof kinds)[number];

export async function startResuming(t: TestContext, kind: Kind): Promise<Router> {
  const workerUrls = [await startAnswering(t), await startAnswering(t)];
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const cors: RouterOptions = { corsAllowedOrigins: ['*'] };
  const recorded = ['radix-tree:{"completions":true}', 'chat-sessions:{"engine":"sglang"}'];
  const changed = [moduleOf(t, SAME)];
  const options: Record<Kind, RouterOptions> = {
    alone: {},
    'with CORS': cors,
    'with a plugin that changes it': { plugin: changed },
    recorded: { plugin: recorded, tokenizerPath, captureChat: true },
    'with all of them': { ...cors, plugin: [...recorded, ...changed], tokenizerPath, captureChat: true },
  };
  return startTestRouter(t, {
    workerUrls,
    policy: 'round_robin',
    resume: 'on',
    retryMaxRetries: 1,
    disableCircuitBreaker: true,
    ...options[kind],
  });
}
