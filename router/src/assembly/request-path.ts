import { RouterError } from '../kit/errors.ts';
import { roleAssigner } from '../classify/pair-roles.ts';
import { pairKind } from '../config/pairs.ts';
import { ControlPaths } from '../engines/controls.ts';
import { ControlEffects } from '../forward/control/control-effects.ts';
import { FanOut } from '../forward/control/fan-out.ts';
import { Failover } from '../forward/failover.ts';
import { Forwarder } from '../forward/forward.ts';
import { forwardOptions } from '../forward/forward-options.ts';
import { pairStyleOf } from '../forward/pd/pair-style.ts';
import { addDataParallelRank } from '../plugins/data-parallel-rank.ts';
import { requestEntry } from '../listen/request-entry.ts';
import { healthFeedback } from '../observe/health-feedback.ts';
import { controlLog, requestLogOptions, requestLogs } from '../observe/request-logs.ts';
import { Plugins } from '../phases/chain.ts';
import { knownEndpointOf } from '../picker/endpoints.ts';
import { neededFor } from '../admin/endpoints.ts';
import { modelRewrite, rewrittenModel } from '../picker/model-rewrite.ts';
import type { PickerParts } from '../picker/picked-request.ts';
import { Pipeline } from '../pipeline.ts';
import { stageOptions } from '../stages.ts';
import type { Own } from './own.ts';

/** The pipeline with its steps, and the entry of requests. */
export function makeRequestPath(parts: Own) {
  const { config, live, log, clock, random, meters, pace, inFlight, access, fleet, table, homes, watch } = parts;
  const { facts, chooser, admission, noAvailable, bodyThread, policyMeters, tracing, recorder, loaded } = parts;
  const { swaps, resume, endpoints, peers, rows, labels } = parts;
  const { breakers, health, models, pauses } = watch;
  const paths = new ControlPaths(config);
  const callers = {
    isOwn: endpoints.isOwn,
    isOfPluginForClients: (path: string) => loaded.endpoints.areForClients(path),
    paths,
  };
  const authorizer = access.authorizer(callers);
  const pageGuard = access.pageGuard({ ...callers, hasShownKey: (x) => authorizer?.hasShownKey(x) === true });
  const fanOut = new FanOut({
    fleet,
    paths,
    effects: new ControlEffects({ table, health, labels, models, pauses }),
    homesOf: (session) => table.homesOf(session),
    health,
    clock,
    hook: swaps?.controls ?? null,
    mayKnowAddresses: (x) => authorizer === null || authorizer.mayControl(x),
    onResult: controlLog(log),
  });
  // The guard reads what the other plugins made of a body.
  const guards = authorizer === null ? [] : [authorizer.bodyGuard];
  // A request is continued as the other plugins made it.
  const plugins = new Plugins([
    ...loaded.plugins,
    ...(config.pickerPort === undefined ? [] : [modelRewrite(bodyThread)]),
    ...parts.fireworks,
    ...(parts.responses === null ? [] : [parts.responses]),
    ...(swaps === null ? [] : [swaps.cacheNamespace]),
    ...(resume === null ? [] : [resume.plugin]),
    ...guards,
  ]);
  addDataParallelRank(fleet, plugins, bodyThread);
  const kind = pairKind(config);
  const pairOptions = live.of(({ pdMinPromptTokens }) => ({ minPromptTokens: pdMinPromptTokens }));
  const pairs = pairStyleOf(kind, pairOptions, clock, bodyThread);
  const options = live.of(forwardOptions);
  const failover = new Failover({
    options,
    clock,
    random,
    eligibleFor: (x) => (x.audience === null ? chooser.eligibleFor(x) : []),
  });
  const logs = requestLogs(log, live.of(requestLogOptions), rows, () => inFlight, homes, neededFor);
  parts.closers.add(() => logs.close());
  const sessionEnds = recorder === null ? [] : [recorder.sessionEnds];
  const pipeline = new Pipeline({
    inFlight,
    options: live.of(stageOptions),
    assignRoles: roleAssigner(kind),
    authorizer,
    pageGuard,
    serveOwn: endpoints.serve,
    fanOut,
    plugins,
    admission,
    facts,
    chooser,
    noAvailableWorkers: noAvailable,
    failover,
    resume,
    makeForwarder: (listener, notes, between) =>
      new Forwarder({ clock, options, retries: failover, pace, pairs }, listener, notes, between),
    observers: [
      meters,
      policyMeters,
      ...(peers === null ? [] : [peers]),
      ...(tracing === null ? [] : [tracing]),
      ...logs.observers,
      rows,
      ...sessionEnds,
      healthFeedback(breakers, health),
    ],
  });
  parts.dispatcher.connect(pipeline);
  const { refusals } = logs;
  const entry = requestEntry({ live, pipeline, meters, refusals, cors: access.cors });
  let wasMissed = false;
  const picker: PickerParts = {
    pipeline,
    options: live.of(({ maxPayloadSize, pickerFallbacks }) => ({
      maxPayloadBytes: maxPayloadSize,
      fallbacks: pickerFallbacks,
    })),
    isControl: (path, method) => endpoints.isOwn(path) || paths.of(path, method).isAddressable,
    othersFor: (x, worker) =>
      chooser
        .eligibleFor(x)
        .filter((each) => each !== worker && !each.isInSwap)
        .toSorted((a, b) => fleet.load(a) - fleet.load(b)),
    workerAt: (endpoint) => fleet.workers.find((worker) => knownEndpointOf(worker) === endpoint) ?? null,
    bodyMissed: (head) => {
      const how = 'set request_body_mode of its ext_proc filter to FULL_DUPLEX_STREAMED or BUFFERED';
      const isRewritten = rewrittenModel(head) !== '';
      const what = swaps !== null ? 'weight swaps change' : isRewritten ? 'x-gateway-model-name-rewrite changes' : null;
      if (what !== null)
        return new RouterError(
          'internal_error',
          `The gateway sends no whole request bodies, and ${what} them: ${how}.`,
        );
      if (!wasMissed && (table.needs === 'prompt' || table.needs === 'ids'))
        log.warn(
          { policy: config.policy },
          `the gateway sends no whole request bodies, and the policy goes by prompts: ${how}`,
        );
      wasMissed = true;
      return null;
    },
    wantsUsage: () => {
      const { pickerUsage } = live.current;
      return pickerUsage === 'auto' ? table.learnsFromAnswers : pickerUsage === 'on';
    },
    served: (x, worker, placed) => {
      chooser.servedBy(x, worker);
      health.suspect(placed);
    },
  };
  return { ...parts, pipeline, logs, entry, picker };
}
