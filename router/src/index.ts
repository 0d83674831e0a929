/** What other programs may build on: a router inside their process, policies and plugins for it. */
export { type ErrorCode, RouterError } from './kit/errors.ts';
export { ConfigError, loadConfig } from './config/load.ts';
export type { CustomPolicy, CustomPolicyContext, Hold, MoveWhy, Needs, Policy } from './choose/policy.ts';
export type { Config } from './config/options.ts';
export type {
  AnswerEar,
  Candidate,
  Exchange,
  KeyKind,
  Move,
  MoveReason,
  Outcome,
  Prompt,
  RoutingKey,
} from './exchange.ts';
export type { Placement, Worker } from './fleet/worker.ts';
export type { Plugin, PluginPhases, PluginRefusal, PluginRoutes } from './plugin.ts';
export type { OptionsSchema, PluginContext, PluginDefinition } from './plugins/definition.ts';
export { type Router, type RouterParts, startRouter } from './router.ts';
export { type Dispatch, DispatchError, type DispatchRequest, type DispatchResponse } from './listen/dispatch.ts';
export type { ResponseHead } from './wire/response-head.ts';
