/** What other programs may build on: a router inside their process, and plugins for it. */
export { ConfigError, loadConfig } from './config/load.ts';
export type { CustomPolicy, CustomPolicyContext, Hold, Needs, Policy } from './choose/policy.ts';
export type { Config } from './config/options.ts';
export type { Candidate, Exchange, KeyKind, Outcome, Prompt, RoutingKey } from './exchange.ts';
export type { Placement, Worker } from './fleet/worker.ts';
export type { Plugin } from './plugin.ts';
export { type Router, type RouterParts, startRouter } from './router.ts';
export type { ResponseHead } from './wire/response-head.ts';
