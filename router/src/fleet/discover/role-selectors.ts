import type { Config } from '../../config/options.ts';
import type { Role } from '../worker.ts';

/** Labels that the pods of a role have, all of them, `key=value` each; none: no pod is of that role. */
export interface RoleSelectors {
  readonly prefill: readonly string[];
  readonly decode: readonly string[];
}

type Labels = Readonly<Record<string, string>>;

/** @returns null where all pods that are found serve whole requests. */
export function roleSelectorsOf({ prefillSelector, decodeSelector }: Config): RoleSelectors | null {
  if (prefillSelector.length === 0 && decodeSelector.length === 0) return null;
  return { prefill: prefillSelector, decode: decodeSelector };
}

/**
 * What the labels of a pod make of it. A pod that fits both is of the role that asks for more of it (`app=engine` and
 * `app=engine role=prefill`); where neither does, nobody can tell.
 */
export function roleOf(labels: Labels | undefined, { prefill, decode }: RoleSelectors): Role | 'both' | null {
  const [isPrefill, isDecode] = [fits(labels, prefill), fits(labels, decode)];
  if (isPrefill !== isDecode) return isPrefill ? 'prefill' : 'decode';
  if (!isPrefill) return null;
  if (hasAllOf(prefill, decode)) return 'prefill';
  return hasAllOf(decode, prefill) ? 'decode' : 'both';
}

/**
 * The narrowest selector of the API server's that leaves out no pod of either role: it knows no "or" but among the values of
 * one key. One list and one watch for both, since a pod that changes its role has to do so in one step: two watches would tell
 * of its two sides in any order.
 */
export function selectorForAll({ prefill, decode }: RoleSelectors): string {
  if (prefill.length === 0 || decode.length === 0) return [...prefill, ...decode].join(',');
  const [ofPrefill, ofDecode] = [valuesByKey(prefill), valuesByKey(decode)];
  return [...ofPrefill]
    .flatMap(([key, values]) => {
      const others = ofDecode.get(key);
      if (others === undefined) return [];
      const all = [...new Set([...values, ...others])];
      return all.length === 1 ? `${key}=${all[0]}` : `${key} in (${all.join(',')})`;
    })
    .join(',');
}

function fits(labels: Labels | undefined, selector: readonly string[]): boolean {
  return (
    selector.length > 0 &&
    selector.every((pair) => {
      const [key, value] = split(pair);
      return labels?.[key] === value;
    })
  );
}

const hasAllOf = (selector: readonly string[], other: readonly string[]): boolean =>
  other.every((pair) => selector.includes(pair));

function valuesByKey(selector: readonly string[]): Map<string, string[]> {
  const values = new Map<string, string[]>();
  for (const pair of selector) {
    const [key, value] = split(pair);
    values.set(key, [...(values.get(key) ?? []), value]);
  }
  return values;
}

function split(pair: string): readonly [key: string, value: string] {
  const at = pair.indexOf('=');
  return [pair.slice(0, at), pair.slice(at + 1)];
}
