import type { KeyOrder } from '../config/options/routing.ts';
import type { Exchange, KeyKind } from '../exchange.ts';

/** One place where a key may stand. `name`: of the header, or of the body's field (`a.b`: inside an object). */
export interface KeyPlace {
  readonly kind: KeyKind;
  readonly in: 'header' | 'body';
  readonly name: string;
}

const places = (kind: KeyKind, where: KeyPlace['in'], ...names: readonly string[]): KeyPlace[] =>
  names.map((name) => ({ kind, in: where, name }));

/** The body's fields that can hold a key: all that `orders` below name. */
export const keyFields = ['session_params', 'prompt_cache_key', 'session_id', 'user', 'user_id'] as const;

/**
 * Where keys are looked for, the first one found counts; without any, the hash of the body.
 *
 * `turnout`: what says most comes first, wherever it stands. `vllm-router`: the order of that router's documentation, so
 * that a fleet moved from it keeps its placement rules.
 */
export const orders: Readonly<Record<KeyOrder, (headers: readonly string[]) => KeyPlace[]>> = {
  turnout: (headers) => [
    ...places('session', 'header', ...headers),
    ...places('session', 'body', 'session_params.session_id', 'prompt_cache_key', 'session_id'),
    ...places('tenant', 'header', 'x-user-id', 'x-tenant-id'),
    ...places('tenant', 'body', 'user', 'user_id'),
    ...places('request', 'header', 'x-request-id', 'x-correlation-id', 'x-trace-id'),
  ],
  'vllm-router': () => [
    ...places('session', 'header', 'x-session-id'),
    ...places('tenant', 'header', 'x-user-id', 'x-tenant-id'),
    ...places('request', 'header', 'x-request-id', 'x-correlation-id', 'x-trace-id'),
    ...places('session', 'body', 'session_params.session_id'),
    ...places('tenant', 'body', 'user'),
    ...places('session', 'body', 'session_id'),
    ...places('tenant', 'body', 'user_id'),
  ],
};

/** The session that a client names, for those who want it where no policy asks for keys and nobody looked; ''. */
export function sessionOf({ session, head }: Exchange, headers: readonly string[]): string {
  if (session !== '') return session;
  for (const name of headers) {
    const value = head.get(name);
    if (value !== undefined && value !== '') return value;
  }
  return '';
}
