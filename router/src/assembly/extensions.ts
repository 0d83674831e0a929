import { ControlPaths } from '../engines/controls.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Plugin } from '../plugin.ts';
import type { BuiltIns } from '../plugins/definition.ts';
import { rlControl } from '../plugins/rl-control/index.ts';
import { startPlugins } from '../plugins/start.ts';
import { storedResponses } from '../plugins/stored-responses/index.ts';
import { recorderPlugins, startRecorder } from '../recorder/tap/recorder.ts';
import type { Base } from './base.ts';
import type { Choice, Engines } from './choice.ts';

export type Extensions = Awaited<ReturnType<typeof startExtensions>>;

/** What is added to the router: the recorder, the Tinker API, weight swaps, resume, plugins. */
export async function startExtensions(
  { config, live, log, clock, meters, dispatcher, inFlight, closers }: Base,
  { fleet, labels }: Engines,
  { store: state, table, watch, holdQueue, chooser, bodyThread }: Choice,
  plugins: readonly Plugin[],
) {
  const { dispatch } = dispatcher;
  const swapsWeights = config.swapSnapshots !== undefined || config.deployments.length > 0;
  const swapParts = {
    live,
    fleet,
    labels,
    watch,
    holdQueue,
    inFlight: () => inFlight,
    state,
    clock,
    bodyThread,
    cacheLost: (worker: Worker) => table.flushed(worker),
    log,
  };
  const swaps = swapsWeights ? (await import('../swap/swaps.ts')).startSwaps(swapParts) : null;
  chooser.gate = swaps?.gate ?? null;
  const recorder = await startRecorder(config, labels, log, swaps?.snapshots ?? null);
  const policyFor = table.nameFor.bind(table);
  const fullWeights =
    swaps === null
      ? null
      : {
          swapTo: (identity: string, path: string) =>
            swaps.deployments.signal(swaps.deployments.all[0]!, { identity, path, reset: 'all' }),
          of: swaps.snapshots.of.bind(swaps.snapshots),
        };
  const tinkerParts = { live, fleet, dispatch, log, policyFor, models: () => watch.models, state, fullWeights };
  const tinker = config.tinker ? (await import('../tinker/tinker.ts')).startTinker(tinkerParts) : null;
  const own: { isOwn: (path: string) => boolean } = { isOwn: () => false };
  const rl = rlControl({ fleet, dispatch, paths: new ControlPaths(config), own });
  const given = [rl, ...(swaps?.plugins ?? []), ...plugins, ...(tinker?.plugins ?? []), ...(recorder?.plugins ?? [])];
  const builtIns: BuiltIns = {
    ...recorderPlugins(recorder),
    'rollout-fields': async () => (await import('../rollout-fields/index.ts')).rolloutFields,
  };
  const loaded = await startPlugins(given, { live, fleet, dispatch, meters, log, builtIns });
  closers.add(() => loaded.close());
  // The names of deployments come on all paths.
  const scope = swaps !== null && config.fireworksNames === 'inference' ? 'all' : config.fireworksNames;
  const fireworks =
    scope === 'off'
      ? []
      : (await import('../plugins/fireworks/plugins.ts')).fireworksPlugins(scope, {
          fleet,
          models: watch.models,
          log,
          hasRolloutFields: loaded.plugins.some(({ name }) => name === 'rollout-fields'),
        });
  const responses = storedResponses(fleet, bodyThread, state.open('responses'));
  const resumeParts = {
    resumesAll: config.resume === 'all',
    maxRetries: () => live.current.retryMaxRetries,
    swaps: swaps?.aborts ?? null,
    weights: swaps?.snapshots ?? null,
  };
  const resume = config.resume === 'off' ? null : new (await import('../resume/resume.ts')).Resume(resumeParts);
  return { recorder, tinker, swaps, loaded, fireworks, responses, resume, own };
}
