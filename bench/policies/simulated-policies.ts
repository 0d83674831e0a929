import { peers } from './peers/peers.ts';
import { shipped } from './shipped.ts';
import type { SimPolicyFactory } from './policy.ts';

/** All policies by name. */
export const policies: Readonly<Record<string, SimPolicyFactory>> = { ...peers, ...shipped };
