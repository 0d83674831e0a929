import { boundedKey, sessionOf } from '../../../classify/routing-keys.ts';
import { type ErrorCode, RouterError } from '../../../kit/errors.ts';
import { readObject } from '../../../kit/json-object.ts';
import type { Context, Hono } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { Exchange } from '../../../exchange.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import type { TextStrategy } from './text-strategy.ts';
import type { TokenLookup } from './token-lookup.ts';

/** `POST /retrieve_from_text` and `GET /radix_tree/stats`, as slime's router has them. */
export function addRoutes(
  app: Hono,
  thread: RecorderThread,
  { strategy, lookup }: { readonly strategy: TextStrategy; readonly lookup: TokenLookup },
  sessionHeaders: readonly string[],
): void {
  app.post('/retrieve_from_text', async (c) => {
    const question = readQuestion(await c.req.text());
    if (typeof question === 'string') return c.json({ error: question, code: 'bad_request' }, 400);
    const session = boundedKey(question.session) || sessionOf(exchangeOf(c), sessionHeaders);
    const { tenant } = exchangeOf(c);
    const found = await thread.ask('retrieveFromText', { ...question, session, tenant });
    if ('code' in found) return refused(c, found);
    return c.body(Buffer.from(found.buffer as ArrayBuffer, found.byteOffset, found.length), 200, {
      'content-type': 'application/json',
    });
  });

  app.get('/radix_tree/stats', async (c) => {
    const { prompts, hits, promptTokens, knownTokens, ...counts } = await thread.ask('settledStats', null);
    return c.json({
      prompts,
      hits,
      hit_rate: prompts === 0 ? null : hits / prompts,
      prompt_tokens: promptTokens,
      known_tokens: knownTokens,
      token_hit_rate: promptTokens === 0 ? null : knownTokens / promptTokens,
      turns: counts.turns,
      nodes: counts.nodes,
      bytes: counts.bytes,
      trees: counts.trees,
      evicted_nodes: counts.evictedNodes,
      collected_nodes: counts.collectedNodes,
      evicted_live_turns: counts.evictedLiveTurns,
      restored_turns: counts.restored,
      lost_turns: counts.lost,
      retokenization_mismatches: counts.retokenized,
      uncaptured_answers: counts.uncaptured + strategy.tooLargeResponses,
      // It may have text of another client's response.
      last_problem: exchangeOf(c).seesAllTenants ? counts.lastProblem : null,
      failures: lookup.failures,
    });
  });
}

function refused(c: Context, { code, message }: { code: ErrorCode; message: string }): Response {
  const { status, retryAfterSecs } = new RouterError(code, message);
  const after = retryAfterSecs > 0 ? { 'retry-after': String(retryAfterSecs) } : {};
  return c.json({ error: message, code }, status as ContentfulStatusCode, { 'x-turnout-error': code, ...after });
}

const exchangeOf = (c: Context): Exchange => (c.env as { exchange: Exchange }).exchange;

interface Question {
  readonly text: string;
  readonly model: string;
  /** '' where the body names none. */
  readonly session: string;
  readonly withLogprobs: boolean;
}

/** @returns what is wrong with it, in words */
function readQuestion(json: string): Question | string {
  const value = readObject(json);
  if (typeof value === 'string') return value;
  const { text, return_logp: withLogprobs = true, model = '', ...more } = value;
  const session = more['session'] ?? more['session_id'] ?? '';
  if (typeof text !== 'string' || text === '') return '"text" has to be a string that is not empty';
  if (typeof withLogprobs !== 'boolean') return '"return_logp" has to be true or false';
  if (typeof model !== 'string') return '"model" has to be a string';
  if (typeof session !== 'string') return '"session" (or "session_id") has to be a string';
  return { text, model, session, withLogprobs };
}
