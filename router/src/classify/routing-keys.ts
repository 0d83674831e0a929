import { hash } from 'node:crypto';
import { type KeyOrder, type SessionField, sessionFields } from '../config/options/routing.ts';
import type { KeyKind } from '../exchange.ts';
import type { ExchangeView } from '../phases/exchange-view.ts';

/** Longer keys are replaced by their hash, as keys are stored, compared and logged. Longer model names are ignored. */
export const MAX_KEY_CHARS = 512;

/** A byte order mark is a character of the key, as in a body. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** A place where a key may be: the name of a header, or of a field of the body (`a.b` for a field in an object). */
export interface KeyPlace {
  readonly kind: KeyKind;
  readonly in: 'header' | 'body';
  readonly name: string;
  /** The field holds a user: it is a session key only if its value names a session, and a tenant key may be a session's. */
  readonly isForUser?: true;
}

const places = (kind: KeyKind, where: KeyPlace['in'], ...names: readonly string[]): KeyPlace[] =>
  names.map((name) => ({ kind, in: where, name }));

/** All fields of the body that `keyOrders` name. */
export const keyFields = [
  'session_params',
  'prompt_cache_key',
  'session_id',
  'routing_key',
  'metadata',
  'user',
  'user_id',
] as const;

const userFields: readonly string[] = ['metadata.user_id', 'user'] satisfies SessionField[];

const marked = (found: readonly KeyPlace[], fields: readonly string[]): KeyPlace[] =>
  found.map((place) =>
    userFields.includes(place.name) && fields.includes(place.name) ? { ...place, isForUser: true } : place,
  );

/**
 * Where keys are looked for, in order; without any, the hash of the body is the key.
 *
 * `turnout`: the most specific kind first, in headers and bodies. `vllm-router`: the order in that router's
 * documentation, so that a fleet moved from it keeps its placement.
 */
export const keyOrders: Readonly<
  Record<KeyOrder, (headers: readonly string[], fields?: readonly SessionField[]) => KeyPlace[]>
> = {
  turnout: (headers, fields = sessionFields) => [
    ...places('session', 'header', ...headers),
    ...marked(places('session', 'body', ...fields), fields),
    ...places('tenant', 'header', 'x-user-id', 'x-tenant-id'),
    ...marked(places('tenant', 'body', 'user', 'user_id', 'metadata.user_id'), fields),
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

/** A user id that ends with a session (Claude Code before 2.1.78). */
const SESSION_AT_END = /_session_([\w-]{8,})$/;

/** @returns '' if the value names no session */
export function sessionInUser(value: string): string {
  if (!value.startsWith('{')) return SESSION_AT_END.exec(value)?.[1] ?? '';
  try {
    // Claude Code since 2.1.78.
    const { session_id: id } = JSON.parse(value) as { session_id?: unknown };
    return typeof id === 'string' ? id : '';
  } catch {
    return '';
  }
}

/** The client's session, also if no policy read the keys; ''. */
export function sessionOf(
  { session, head }: Pick<ExchangeView, 'session' | 'head'>,
  headers: readonly string[],
): string {
  if (session !== '') return session;
  for (const name of headers) {
    const value = head.get(name);
    if (value !== undefined && value !== '') return headerKeyText(value);
  }
  return '';
}

/** The client's group, also if no policy read the keys; ''. */
export function groupOf({ group, head }: Pick<ExchangeView, 'group' | 'head'>): string {
  const value = group === '' ? head.get('x-turnout-group') : undefined;
  return value === undefined ? group : headerKeyText(value);
}

/** The stored form of a key in a header. */
export const headerKeyText = (value: string): string => boundedKey(utf8Header(value));

/** Header values have one byte per character; clients mean UTF-8, as for the same key in a body. */
export function utf8Header(value: string): string {
  // A copy: a slice would keep the head, up to 64 KB, in memory as long as the session.
  if (!/[\x80-\xff]/.test(value)) return ` ${value}`.slice(1);
  try {
    return utf8.decode(Buffer.from(value, 'latin1'));
  } catch {
    return value;
  }
}

/**
 * The stored form of a key. Stores and responses have UTF-8, in which all unpaired surrogates are U+FFFD: keys with some are replaced by their
 * hashes, too.
 */
export function boundedKey(key: string): string {
  if (!key.isWellFormed()) return hashedKey(Buffer.from(JSON.stringify(key)));
  return key.length <= MAX_KEY_CHARS ? key : hashedKey(Buffer.from(key));
}
/** Of 96 bits: with 32, two sessions in some 100,000 with long keys would be one. */
export const hashedKey = (key: Buffer): string => `hash:${hash('sha256', key, 'hex').slice(0, 24)}:${key.length}`;
