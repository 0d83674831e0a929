import type { Context } from 'hono';

/** Clients repeat 500 and 503 for minutes (fireworks-ai 1.2.28, `request_with_retries`): 503 is for what the next router answers. */
export type RefusalStatus = 400 | 404 | 409 | 501 | 503;

/** An error in the form that clients of Fireworks match. */
export const refuse = (c: Context, status: RefusalStatus, message: string): Response =>
  c.json({ error: { message, code: status === 404 ? 'not_found' : 'invalid_request_error' } }, status);
