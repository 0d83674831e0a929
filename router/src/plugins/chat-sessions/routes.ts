import type { Context, Hono } from 'hono';
import type { Exchange } from '../../exchange.ts';
import { newSessionId } from '../../trajectory/chat/session-id.ts';
import type { ChatName } from '../../trajectory/chat/chat-calls.ts';
import type { Ledger } from '../../trajectory/ledger.ts';

/** Sessions themselves, in the form of miles' session server. Their end is among the router's own: `DELETE /sessions/{id}`. */
export function addRoutes(app: Hono, ledger: Ledger): void {
  const nameOf = (c: Context): ChatName => ({
    session: c.req.param('id') ?? '',
    tenant: (c.env as { exchange?: Exchange } | undefined)?.exchange?.tenant ?? '',
  });
  /** @returns what is said where there is no such session; null: there is */
  const missing = async (c: Context): Promise<Response | null> => {
    const name = nameOf(c);
    if (await ledger.ask('chatKnown', name)) return null;
    const error = `There is no session '${name.session}': POST /sessions begins one.`;
    return c.json({ error, code: 'session_not_found' }, 404, { 'x-turnout-error': 'session_not_found' });
  };

  app.post('/sessions', (c) => c.json({ session_id: newSessionId() }));

  app.get('/sessions/:id', async (c) => {
    const refusal = await missing(c);
    if (refusal !== null) return refusal;
    const bytes = await ledger.ask('chatRecords', nameOf(c));
    return c.body(Buffer.from(bytes), 200, { 'content-type': 'application/json' });
  });

  app.post('/sessions/:id/samples', async (c) => {
    const refusal = await missing(c);
    if (refusal !== null) return refusal;
    const maxTokens = readMaxTokens(await c.req.text());
    if (typeof maxTokens === 'string') return c.json({ error: maxTokens, code: 'bad_request' }, 400);
    const bytes = await ledger.ask('chatSamples', { ...nameOf(c), maxTokens });
    if (typeof bytes === 'string') return c.json({ error: bytes, code: 'bad_request' }, 422);
    return c.body(Buffer.from(bytes), 200, { 'content-type': 'application/octet-stream' });
  });
}

/** @returns 0: no limit; a text: what is wrong */
function readMaxTokens(json: string): number | string {
  if (json.trim() === '') return 0;
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    return `The body is no JSON: ${(error as Error).message}`;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'The body has to be a JSON object.';
  const length = (value as { max_seq_len?: unknown }).max_seq_len ?? 0;
  return Number.isSafeInteger(length) && (length as number) >= 0
    ? (length as number)
    : '"max_seq_len" has to be a whole number.';
}
