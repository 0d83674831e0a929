import type { Policy as AnyPolicy } from './choose/policy.ts';
import type { Exchange } from './exchange.ts';

/** What other programs may build on: a router inside their process, policies and plugins for it. */
export { type ErrorCode, RouterError } from './kit/errors.ts';
export { ConfigError, loadConfig } from './config/load.ts';
export type { CustomPolicy, CustomPolicyContext } from './choose/load-policy.ts';
export type { FlushWhy, Hold, MoveWhy, PolicyContext } from './choose/policy.ts';
export type { Needs } from './placed-request.ts';
/** Of requests that pass the router. */
export type Policy = AnyPolicy<Exchange>;
export type { Config } from './config/options.ts';
export type { ResponseObserver, FailedAttempt, Failure, KeyKind, Outcome, Prompt, RoutingKey } from './exchange.ts';
export type { Move, MoveReason } from './fleet/session-move.ts';
export type { Leg, Placement, Worker } from './fleet/worker.ts';
export type { Fleet } from './fleet/fleet.ts';
export type { Logger } from './observe/log.ts';
export type { PluginMetrics } from './plugins/plugin-metrics.ts';
export type { StateMap } from './choose/state.ts';
export type { Candidate } from './exchange.ts';
export type {
  ExchangeView as Exchange,
  RequestBodyView as RequestBody,
  RequestHeadView as RequestHead,
  StateKey,
} from './phases/exchange-view.ts';
export {
  type AttemptFailure,
  type NoPart,
  type Plugin,
  type PluginAnswer,
  type PluginPhases,
  type PluginRefusal,
  type PluginRoutes,
  Refused,
  type ValueCutter,
  type ValueTaker,
} from './plugin.ts';
export type { OptionsSchema, PluginContext, PluginDefinition } from './plugins/definition.ts';
export { type Router, type RouterParts, startRouter } from './router.ts';
export { type Dispatch, DispatchError, type DispatchRequest, type DispatchResponse } from './listen/dispatch.ts';
export type { ResponseHead } from './wire/response-head.ts';
