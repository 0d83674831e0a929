import { signal } from '@preact/signals';
import type { FeedEvent } from '../../../router/src/admin/dashboard/protocol.ts';
import { EventSplitter } from './events.ts';
import { FeedState } from './state.ts';

/** `refused`: the router requires an admin key, or this port does not serve the feed. */
export type Connection = 'connecting' | 'connected' | 'lost' | 'refused';

export const state = new FeedState();
export const connection = signal<Connection>('connecting');
/** The error of the router for the last key; '' before the first. */
export const refusal = signal('');
/** In memory only: a reload of the page forgets it. */
export const key = signal('');

const RETRY_MS = 1_000;
const MAX_RETRY_MS = 10_000;
/** The router sends an event every second. */
const SILENCE_MS = 10_000;

/** Relative to the page, which may be behind a proxy with a path of its own. */
const urlOf = (path: string): URL => new URL(path.replace(/^\//, ''), location.href);

const authorization = (): Record<string, string> => (key.value === '' ? {} : { authorization: `Bearer ${key.value}` });

/** Calls an endpoint of the router. Rejects with its error as text. */
export async function call(method: string, path: string, body?: object): Promise<unknown> {
  const json = body === undefined ? {} : { body: JSON.stringify(body) };
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await fetch(urlOf(path), { method, headers: { ...authorization(), ...type }, ...json });
  const text = await response.text();
  if (!response.ok) throw new Error(errorIn(text) || `${method} ${path}: status ${response.status}`);
  return text === '' ? null : (JSON.parse(text) as unknown);
}

function errorIn(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: string | { message?: string } };
    return (typeof error === 'string' ? error : error?.message) ?? '';
  } catch {
    return '';
  }
}

let follow: AbortController | null = null;

/** Follows the router until it refuses the key. Called again with another key it begins anew. */
export async function connect(): Promise<void> {
  follow?.abort();
  const own = new AbortController();
  follow = own;
  connection.value = 'connecting';
  for (let waitMs = RETRY_MS; !own.signal.aborted; waitMs = Math.min(MAX_RETRY_MS, waitMs * 2)) {
    const answer = await read(own.signal, () => (waitMs = RETRY_MS)).catch(() => 'lost' as const);
    if (own.signal.aborted) return;
    connection.value = answer;
    if (answer === 'refused') return;
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

async function read(signal: AbortSignal, onEvent: () => void): Promise<'lost' | 'refused'> {
  const silence = new AbortController();
  const response = await fetch(urlOf('dashboard/feed'), {
    headers: authorization(),
    signal: AbortSignal.any([signal, silence.signal]),
    cache: 'no-store',
  });
  if (response.status === 401 || response.status === 403) {
    const error = errorIn(await response.text());
    // 401 without a key is no error of the user. 403 is: this port does not serve the feed, whatever the key.
    refusal.value = key.value === '' && response.status === 401 ? '' : error;
    return 'refused';
  }
  if (!response.ok || response.body === null) return 'lost';
  const events = new EventSplitter();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return 'lost';
    for (const data of events.push(value)) state.apply(JSON.parse(data) as FeedEvent);
    connection.value = 'connected';
    onEvent();
  }
}
