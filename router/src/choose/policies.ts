import type { PolicyName } from '../config/options.ts';
import { consistentHash } from './policies/consistent-hash.ts';
import { leastInflight } from './policies/least-inflight.ts';
import { powerOfTwo } from './policies/power-of-two.ts';
import { random } from './policies/random.ts';
import { roundRobin } from './policies/round-robin.ts';
import type { PolicyFactory } from './policy.ts';

/** Every policy by its name; `-` and `_` are the same in names. */
export const policies: Readonly<Record<PolicyName, PolicyFactory>> = {
  consistent_hash: consistentHash,
  least_inflight: leastInflight,
  power_of_two: powerOfTwo,
  random,
  round_robin: roundRobin,
};
