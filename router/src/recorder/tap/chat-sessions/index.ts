import * as z from 'zod';
import { defaultMemoryBytes } from '../../shared/memory-limit.ts';
import type { Exchange } from '../../../exchange.ts';
import type { Recorder } from '../recorder.ts';
import type { PluginDefinition } from '../../../plugins/definition.ts';
import { addMetrics, chatMetrics } from '../metrics.ts';
import { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import { type ChatSessionsOptions, ChatSessions } from './chat-sessions.ts';
import { boundedKey } from '../../../classify/routing-keys.ts';
import { isObject, readObject } from '../../../kit/json-object.ts';
import type { Context, Hono } from 'hono';
import { newSessionId, noSuchSession } from '../../shared/session-id.ts';
import type { ChatName } from '../../shared/turn.ts';
import type { SamplesWish } from '../../thread/chat/samples.ts';
import { type RecorderThread, storeFailed } from '../recorder-thread.ts';

const OWN = ['messages', 'stream', 'input_ids'];

const options = z.strictObject({
  equality: z
    .enum(['strict', 'loose_tool_call', 'role_content_only'])
    .default('loose_tool_call')
    .describe('When a message that a client sends back is the one on record.'),
  forward: z
    .enum(['ids', 'messages'])
    .default('ids')
    .describe('What engines get: token ids, or messages that they render and return as ids.'),
  engine: z.enum(['auto', 'sglang', 'vllm']).default('auto').describe('What its workers are; auto: as they say.'),
  verify: z.boolean().default(true).describe('Compare the tokenizer with that of each engine when it joins.'),
  request: z
    .record(z.string(), z.unknown())
    .default({})
    .refine((members) => !OWN.some((name) => Object.hasOwn(members, name)), `${OWN.join(', ')} are each chat's own`)
    .describe('Members that a chat has where its client leaves them out.'),
  samples: z
    .enum(['ends', 'last_attempts', 'newest'])
    .default('ends')
    .describe('Which ends of a session are samples: all, those that were not asked for again, the newest.'),
});

/** Chats with exact tokens: see docs/guides/chat-sessions.md. */
export const chatSessions = (recorder: Recorder | null): PluginDefinition<ChatSessionsOptions> => ({
  name: 'chat-sessions',
  options,
  async create(own, { config, fleet, log, metrics }) {
    if (config.tokenizerPath === undefined || recorder === null) {
      throw new Error("it needs the model's tokenizer: --tokenizer-path");
    }
    const { thread } = recorder;
    recorder.isNeeded = true;
    await recorder.restarts.prepare(() => thread.ask('loadTokenizer', null));
    log.info(
      { maxBytes: config.storeMemoryBytes ?? defaultMemoryBytes() },
      'memory limit of chat sessions; evicted sessions are read from the store when they continue',
    );
    const { equality, request, samples } = own;
    await recorder.restarts.prepare(() =>
      thread.ask('chatBegin', { equality, request, samples, isAgain: recorder.restarts.count > 0 }),
    );
    const tokenizerCheck = new TokenizerCheck((text) => thread.ask('encodeText', text), log);
    if (own.verify && own.forward === 'ids') tokenizerCheck.watch(fleet);
    const sessions = new ChatSessions(own, { recorder, tokenizerCheck, captureChat: config.captureChat, log });
    recorder.calls.record(
      (x) => sessions.mayBeInSession(x),
      (x) => sessions.isInSession(x),
    );
    addMetrics(metrics, {}, chatMetrics, async () => {
      const stats = await thread.ask('chatStats', null);
      // Responses that were too large are counted here: they never reach the recorder thread.
      return { ...stats, uncaptured: stats.uncaptured + sessions.strategy.unkept };
    });
    return {
      retarget: (x: Exchange) => sessions.retarget(x),
      appliesTo: (x: Exchange) => sessions.appliesTo(x),
      admit: (x: Exchange) => sessions.admit(x),
      answer: (x: Exchange) => sessions.answer(x),
      requestBody: (x: Exchange, body, worker) => sessions.requestBody(x, body, worker),
      observeResponse: (x: Exchange, head) => sessions.capture.observeResponse(x, head),
      cutValues: (x: Exchange, head, taker) => sessions.cutValues(x, head, taker),
      beforeValue: (x: Exchange, beginning) => sessions.beforeValue(x, beginning),
      responseEvent: (x: Exchange, event) => sessions.responseEvent(x, event),
      responseBody: (x: Exchange, body) => sessions.responseBody(x, body),
      finished: (x: Exchange) => sessions.capture.finished(x),
      routes: ({ forClients }) => addRoutes(forClients, thread),
      timeoutMs: sessions.capture.timeoutMs,
      isInnermost: true,
      close: () => tokenizerCheck.close(),
    };
  },
});

/** Sessions themselves, in the form of miles' session server. Their end is among the router's own: `DELETE /sessions/{id}`. */
function addRoutes(app: Hono, thread: RecorderThread): void {
  const nameOf = (c: Context): ChatName => ({
    session: boundedKey(c.req.param('id') ?? ''),
    tenant: (c.env as { exchange?: Exchange } | undefined)?.exchange?.tenant ?? '',
  });
  /** @returns the response if there is no such session; null: there is one */
  const missing = async (c: Context): Promise<Response | null> => {
    const name = nameOf(c);
    if (await thread.ask('chatKnown', name)) return null;
    return c.json({ error: noSuchSession(name.session), code: 'session_not_found' }, 404, {
      'x-turnout-error': 'session_not_found',
    });
  };

  app.post('/sessions', (c) => c.json({ session_id: newSessionId() }));

  const read = async (c: Context): Promise<Response> => {
    const refusal = await missing(c);
    if (refusal !== null) return refusal;
    const bytes = await thread.ask('chatRecords', nameOf(c));
    return c.body(Buffer.from(bytes), 200, { 'content-type': 'application/json' });
  };
  const samples = async (c: Context): Promise<Response> => {
    const refusal = await missing(c);
    if (refusal !== null) return refusal;
    const wish = readWish(await c.req.text());
    if (typeof wish === 'string') return c.json({ error: wish, code: 'bad_request' }, 400);
    await thread.requireStored(nameOf(c));
    const bytes = await thread.ask('chatSamples', { ...nameOf(c), ...wish });
    // miles' drivers show the text as it is.
    if (typeof bytes === 'string') return c.text(bytes, 422);
    return c.body(Buffer.from(bytes), 200, { 'content-type': 'application/octet-stream' });
  };
  const notRead = (error: unknown): never => storeFailed(error, "The session can't be read now");
  // The name of a session from a header may have slashes: in paths they are %2F.
  app.get('/sessions/:id{.+}', (c) => read(c).catch(notRead));
  app.post('/sessions/:id{.+}/samples', (c) => samples(c).catch(notRead));
}

/** @returns a text: what is wrong */
function readWish(json: string): SamplesWish | string {
  const value = readObject(json.trim() || '{}');
  if (typeof value === 'string') return value;
  const maxTokens = value.max_seq_len ?? 0;
  const metadata = value.metadata ?? {};
  if (!Number.isSafeInteger(maxTokens) || (maxTokens as number) < 0) return '"max_seq_len" has to be a whole number.';
  return isObject(metadata) ? { maxTokens: maxTokens as number, metadata } : '"metadata" has to be a JSON object.';
}
