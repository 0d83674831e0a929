/** The names of the routing policies. `choose/built-in-policies.ts` must have a factory for each: the compiler checks it. */
export const policyNames = [
  'rollout',
  'least_inflight',
  'round_robin',
  'random',
  'power_of_two',
  'consistent_hash',
  'sticky_least_loaded',
  'manual',
  'cache_aware',
  'prefix_hash',
  'bucket',
  'kv_aware',
] as const;
export type PolicyName = (typeof policyNames)[number];

/** Other names of policies. */
const otherNames: ReadonlyMap<string, PolicyName> = new Map([['consistent_hashing', 'consistent_hash']]);

/** The name of a policy in its usual spelling (`-` and `_` are the same); a path to a module stays as it is. */
export function policyName(text: string): string {
  const name = text.replaceAll('-', '_');
  return isPath(text) ? text : (otherNames.get(name) ?? name);
}

/** `./my-policy.ts`, `/opt/policy.js`, `policies/mine.mjs`. */
export const isPath = (text: string): boolean => /[/\\]|\.[cm]?[jt]s$/.test(text);
