import type { Worker } from '../../../fleet/worker.ts';
import type { ExchangeView as Exchange } from '../../../phases/exchange-view.ts';
import { CHAT_PATH } from '../../../engines/dialects/calls.ts';

export const isChat = ({ path, head }: Exchange): boolean => path === CHAT_PATH && head.method === 'POST';

/** The key by which a client repeats a call whose answer was lost; ''. */
export const keyOf = ({ head, isRequestIdOurs }: Exchange): string =>
  head.get('idempotency-key') ?? (isRequestIdOurs ? '' : head.requestId);

/** Session ids are in paths without escapes. */
const IN_SESSION = /^\/sessions\/([\w.~-]{1,256})\/([^?]+)(\?.*)?$/;

/** What is asked for in a session: `/sessions/ID/v1/chat/completions`. */
export interface InSession {
  readonly session: string;
  /** As it would be without the session. */
  readonly target: string;
}

/** @returns null: it is not in a session, or about the session itself */
export function inSession(target: string): InSession | null {
  const [, session = '', path = '', query = ''] = IN_SESSION.exec(target) ?? [];
  if (session === '' || path === 'samples' || path === 'finish' || path.startsWith('/')) return null;
  return { session, target: `/${path}${query}` };
}

/** Tokens of prompt and answer that a model has room for, as its engine lists it; 0: it doesn't say. */
export function maxModelLen({ models }: Worker, model: string): number {
  const [only] = models?.size === 1 ? models.values() : [];
  const json = models?.get(model) ?? only;
  if (json === undefined) return 0;
  const { max_model_len: length } = JSON.parse(json) as { max_model_len?: unknown };
  return typeof length === 'number' ? length : 0;
}
