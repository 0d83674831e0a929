import type { Context } from 'hono';

/** 500 and 503 are not among them: clients repeat those for minutes (fireworks-ai 1.2.28, `request_with_retries`). */
export type RefusalStatus = 400 | 404 | 409 | 501;

/** An error in the form that clients of Fireworks match. */
export const refuse = (c: Context, status: RefusalStatus, message: string): Response =>
  c.json({ error: { message, code: status === 404 ? 'not_found' : 'invalid_request_error' } }, status);
