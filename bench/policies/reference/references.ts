import type { SimPolicyFactory } from '../policy.ts';
import { Hybrid } from './hybrid.ts';
import { Resident } from './resident.ts';
import { Social, warmed } from './social.ts';

/** What can be had from what a router sees; those that are warm remember the batch before. */
export const references: Readonly<Record<string, SimPolicyFactory>> = {
  social: (host) => new Social(host),
  social_warm: (host) => warmed(new Social(host), host),
  resident_warm: (host) => warmed(new Resident(host), host),
  hybrid_warm: (host) => warmed(new Hybrid(host), host),
};
