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
  /** What changes beside that where engines work in pairs. */
  readonly inPairs: {
    readonly everywhere: readonly string[];
    readonly asks: Readonly<Record<string, readonly string[]>>;
    /** What this router's pairs are asked beside what the peer's are, with the reason. */
    readonly ourFields: Readonly<Record<string, readonly string[]>>;
    /** What this router's decode engine serves alone. */
    readonly alone: readonly string[];
    /** What this router refuses with 501 and keeps from its engines, as they would never answer it. */
    readonly refused: readonly string[];
  };
}

const field = (name: string, value: string): string => `+${name}=${value}`;

/** @returns the lines for a request, or the status with which it is refused. */
export function expected(known: Known, ask: Ask, isPair: boolean): readonly string[] | number {
  const changed = known.asks[ask.name] ?? [];
  if (typeof changed === 'number') return changed;
  const { inPairs } = known;
  const further = isPair ? [...inPairs.everywhere, ...(inPairs.asks[ask.name] ?? [])] : [];
  const [path = ''] = ask.target.split('?');
  const defaults = Object.entries(known.defaults[path] ?? {});
  const said = defaults.length === 0 ? {} : (readExact(ask.body) as object);
  const filled = defaults.filter(([name]) => !Object.hasOwn(said, name)).map(([name, value]) => field(name, value));
  return [...known.everywhere, ...filled, ...changed, ...further].toSorted();
}
