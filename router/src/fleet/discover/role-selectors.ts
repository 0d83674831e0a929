import type { Config } from '../../config/options.ts';
import type { Role } from '../worker.ts';

/** The labels of a role's pods, `key=value` each, all required; none: no pod has that role. */
export interface RoleSelectors {
  readonly prefill: readonly string[];
  readonly decode: readonly string[];
}

type Labels = Readonly<Record<string, string>>;

/** @returns null if all pods serve whole requests */
export function roleSelectorsOf({ prefillSelector, decodeSelector }: Config): RoleSelectors | null {
  if (prefillSelector.length === 0 && decodeSelector.length === 0) return null;
  return { prefill: prefillSelector, decode: decodeSelector };
}

/**
 * The role of a pod by its labels. If both selectors fit, the more specific one decides (`app=engine role=prefill` over
 * `app=engine`); if neither is more specific, the role is ambiguous.
 */
export function roleOf(labels: Labels | undefined, { prefill, decode }: RoleSelectors): Role | 'both' | null {
  const [isPrefill, isDecode] = [fits(labels, prefill), fits(labels, decode)];
  if (isPrefill !== isDecode) return isPrefill ? 'prefill' : 'decode';
  if (!isPrefill) return null;
  if (hasAllOf(prefill, decode)) return 'prefill';
  return hasAllOf(decode, prefill) ? 'decode' : 'both';
}

/**
 * The narrowest selector that includes all pods of both roles: the API server only knows "or" among the values of one
 * key. One watch for both, because with two watches the two halves of a role change could arrive in either order.
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
