import { isIP } from 'node:net';

const LOOPBACK = /^(localhost|127(\.\d+){3}|::1)$/i;
const NAME = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/;

export const isLoopback = (address: string): boolean => LOOPBACK.test(address);

/** @param field the request's Host; undefined: none */
export type HostTest = (field: string | undefined) => boolean;

/**
 * A page whose name resolves to this machine's loopback address (DNS rebinding) is of the same origin as the router for a browser. Its
 * requests carry its name as Host. An address as Host can't be rebound.
 *
 * @param address that a port listens on
 * @param allowed further names; `*.NAME` for all below one, `*` for all
 * @returns null: every name is accepted, as the names of a machine on its network are not known
 */
export function hostTest(address: string, allowed: readonly string[]): HostTest | null {
  if (allowed.includes('*') || (allowed.length === 0 && !isLoopback(address))) return null;
  const names = new Set([address, 'localhost', ...allowed].map((name) => name.toLowerCase()));
  const ends = [
    '.localhost',
    ...allowed.filter((name) => name.startsWith('*.')).map((name) => name.slice(1).toLowerCase()),
  ];
  return (field) => {
    if (field === undefined) return true;
    const [, bracketed, plain = ''] = NAME.exec(field) ?? [];
    const name = (bracketed ?? plain).replace(/\.$/, '').toLowerCase();
    return isIP(name) !== 0 || names.has(name) || ends.some((end) => name.endsWith(end));
  };
}
