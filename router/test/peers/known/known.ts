import type { Ask } from '../asks.ts';
import { readExact } from '../exact-json.ts';

/** What an engine behind a peer gets in place of what the client sent, in the lines of `differences`. */
export interface Known {
  /** Of the peer. Another release is another table. */
  readonly version: string;
  readonly everywhere: readonly string[];
  /** By the path: fields that it writes out with their defaults where the client left them out. */
  readonly defaults: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** By the request: what else changes, or the status with which it is refused before any engine hears of it. */
  readonly asks: Readonly<Record<string, readonly string[] | number>>;
  /** By the request: what changes beside that where engines work in pairs. */
  readonly inPairs: Readonly<Record<string, readonly string[] | number>>;
}

const field = (name: string, value: string): string => `+${name}=${value}`;

/** @returns the lines for a request, or the status with which it is refused. */
export function expected(known: Known, ask: Ask, isPair: boolean): readonly string[] | number {
  const changed = known.asks[ask.name] ?? [];
  const further = (isPair ? known.inPairs[ask.name] : undefined) ?? [];
  if (typeof changed === 'number') return changed;
  if (typeof further === 'number') return further;
  const [path = ''] = ask.target.split('?');
  const defaults = Object.entries(known.defaults[path] ?? {});
  const said = defaults.length === 0 ? {} : (readExact(ask.body) as object);
  const filled = defaults.filter(([name]) => !Object.hasOwn(said, name)).map(([name, value]) => field(name, value));
  return [...known.everywhere, ...filled, ...changed, ...further].toSorted();
}
