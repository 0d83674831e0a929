import type { PolicyName } from '../config/options/policy-names.ts';
import { bucket } from './policies/bucket.ts';
import { cacheAware } from './policies/cache-aware.ts';
import { consistentHash } from './policies/consistent-hash.ts';
import { kvAware } from './policies/kv-aware.ts';
import { leastInflight } from './policies/least-inflight.ts';
import { manual } from './policies/manual.ts';
import { powerOfTwo } from './policies/power-of-two.ts';
import { prefixHash } from './policies/prefix-hash.ts';
import { random } from './policies/random.ts';
import { rollout } from './policies/rollout.ts';
import { roundRobin } from './policies/round-robin.ts';
import { stickyLeastLoaded } from './policies/sticky-least-loaded.ts';
import type { PolicyFactory } from './policy.ts';

/** One factory for each of `policyNames`: the compiler checks that none is missing. */
export const policies: Readonly<Record<PolicyName, PolicyFactory>> = {
  bucket,
  cache_aware: cacheAware,
  consistent_hash: consistentHash,
  kv_aware: kvAware,
  least_inflight: leastInflight,
  manual,
  power_of_two: powerOfTwo,
  prefix_hash: prefixHash,
  random,
  rollout,
  round_robin: roundRobin,
  sticky_least_loaded: stickyLeastLoaded,
};
