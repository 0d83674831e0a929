import type { SimPolicyFactory } from '../policy.ts';
import { cacheAwarePolicies } from './cache-aware.ts';
import { DynamoKv } from './dynamo-kv.ts';
import { ringPolicies } from './hash-ring.ts';
import { LlmD } from './llm-d.ts';
import { spreadPolicies } from './spread.ts';
import { StickyLeastLoaded } from './sticky-least-loaded.ts';
import { thunderAgentPolicies } from './thunder-agent.ts';

/** Other routers' policies, modelled from their documentation and sources. */
export const peers: Readonly<Record<string, SimPolicyFactory>> = {
  ...spreadPolicies,
  ...ringPolicies,
  ...cacheAwarePolicies,
  sticky_least_loaded: (host) => new StickyLeastLoaded(host),
  dynamo_kv: (host) => new DynamoKv(host),
  llmd: (host) => new LlmD(host),
  ...thunderAgentPolicies,
};
