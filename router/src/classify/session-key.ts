import type { Exchange } from '../exchange.ts';

/** Headers that name a session, in the order in which they are believed: SGLang, Fireworks (two), vLLM and SkyRL. */
export const sessionHeaders = ['x-smg-routing-key', 'x-multi-turn-session-id', 'x-session-affinity', 'x-session-id'];

/** The key that makes an exchange sticky, or '' when its client gave none. Read from headers only. */
export function sessionKey(x: Exchange): string {
  for (const name of sessionHeaders) {
    const value = x.head.get(name);
    if (value !== undefined && value !== '') return value;
  }
  return '';
}
