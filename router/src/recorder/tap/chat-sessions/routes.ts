import { boundedKey } from '../../../classify/routing-keys.ts';
import { isObject, readObject } from '../../../kit/json-object.ts';
import type { Context, Hono } from 'hono';
import type { Exchange } from '../../../exchange.ts';
import { newSessionId, noSuchSession } from '../../shared/session-id.ts';
import type { ChatName } from '../../shared/turn.ts';
import type { SamplesWish } from '../../thread/chat/samples.ts';
import type { RecorderThread } from '../recorder-thread.ts';

/** Sessions themselves, in the form of miles' session server. Their end is among the router's own: `DELETE /sessions/{id}`. */
export function addRoutes(app: Hono, thread: RecorderThread): void {
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

  // The name of a session from a header may have slashes: in paths they are %2F.
  app.get('/sessions/:id{.+}', async (c) => {
    const refusal = await missing(c);
    if (refusal !== null) return refusal;
    const bytes = await thread.ask('chatRecords', nameOf(c));
    return c.body(Buffer.from(bytes), 200, { 'content-type': 'application/json' });
  });

  app.post('/sessions/:id{.+}/samples', async (c) => {
    const refusal = await missing(c);
    if (refusal !== null) return refusal;
    const wish = readWish(await c.req.text());
    if (typeof wish === 'string') return c.json({ error: wish, code: 'bad_request' }, 400);
    const bytes = await thread.read('chatSamples', { ...nameOf(c), ...wish });
    // miles' drivers show the text as it is.
    if (typeof bytes === 'string') return c.text(bytes, 422);
    return c.body(Buffer.from(bytes), 200, { 'content-type': 'application/octet-stream' });
  });
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
