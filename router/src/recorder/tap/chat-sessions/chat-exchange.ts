import type { EngineKind } from '../../../engines/engine.ts';
import type { Worker } from '../../../fleet/worker.ts';
import type { ExchangeView as Exchange } from '../../../phases/exchange-view.ts';
import { RouterError } from '../../../kit/errors.ts';
import { Refused } from '../../../plugin.ts';
import { CHAT_PATH } from '../../../engines/dialects/calls.ts';

export const isChat = ({ path, head }: Exchange): boolean => path === CHAT_PATH && head.method === 'POST';

/** The key by which a client repeats a call whose answer was lost; ''. An id of `--request-id-headers` may be that of a session. */
export const keyOf = ({ head, isRequestIdOurs }: Exchange): string =>
  head.get('idempotency-key') ?? (isRequestIdOurs ? '' : (head.get('x-request-id') ?? ''));

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

/** A chat that can't be put on record: in a session by path it is refused, any other one is sent unchanged. */
export class NotForRecord extends Refused {}

export const refusal = (...error: ConstructorParameters<typeof RouterError>): NotForRecord =>
  new NotForRecord(new RouterError(...error));

/** The kind of the worker's engine. Throws while it is not known. @param option the plugin's option */
export function kindOf({ engine }: Worker, option: EngineKind | 'auto'): EngineKind {
  if (option !== 'auto') return option;
  if (engine === 'openai') {
    throw refusal('no_available_workers', 'The worker is neither SGLang nor vLLM, so it accepts no token ids.');
  }
  if (engine !== null) return engine;
  const message =
    'The engine kind of the worker is not known before its first good health check. Retry, or set the option "engine" of chat-sessions.';
  throw new Refused(new RouterError('no_available_workers', message));
}

/** A target with another path. */
export function withPath(target: string, path: string): string {
  const query = target.indexOf('?');
  return query < 0 ? path : path + target.slice(query);
}
