import { peers } from './peers/peers.ts';
import { shipped } from './shipped.ts';
import type { SimPolicyFactory } from './policy.ts';
import { references } from './reference/references.ts';

/** All policies by name. */
export const policies: Readonly<Record<string, SimPolicyFactory>> = { ...peers, ...references, ...shipped };
