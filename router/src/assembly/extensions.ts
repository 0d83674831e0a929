import type { BuiltInPlugin } from '../config/options/plugins.ts';
import { ControlPaths } from '../engines/controls.ts';
import { maxRetries } from '../forward/forward-options.ts';
import type { Plugin } from '../plugin.ts';
import type { BuiltIns } from '../plugins/definition.ts';
import { rlControl } from '../plugins/rl-control/index.ts';
import { startPlugins } from '../plugins/start.ts';
import { storedResponses } from '../plugins/stored-responses/index.ts';
import { recorderPlugins, startRecorder } from '../recorder/tap/recorder.ts';
import type { Choice } from './choice.ts';

export type Extensions = Awaited<ReturnType<typeof startExtensions>>;

/** What is added to the router: the recorder, the Tinker API, weight swaps, resume, plugins. */
export async function startExtensions(parts: Choice, plugins: readonly Plugin[]) {
  const { config, live, log, dispatcher, inFlight, closers, fleet, labels, table, policyFor, watch, bodyThread } =
    parts;
  const { dispatch } = dispatcher;
  const { models } = watch;
  const swapsWeights = config.swapSnapshots !== undefined || config.deployments.length > 0;
  const swaps = swapsWeights
    ? await (
        await import('../swap/swaps.ts')
      ).startSwaps({
        ...parts,
        inFlight: () => inFlight,
        state: parts.store,
        isDraining: () => parts.ports.data.isDraining,
        cacheLost: (worker) => table.flushed(worker, 'namespace'),
      })
    : null;
  parts.chooser.gate = swaps?.gate ?? null;
  if (swaps !== null) parts.choosing.control.onSessionEnded = swaps.sessionEnded;
  const recorder = await startRecorder(config, labels, log, swaps?.engines ?? null);
  closers.add(() => recorder?.close());
  const fullWeights = swaps && {
    areOfAll: () =>
      swaps.engines.sets.size === 1 && fleet.workers.every((worker) => swaps.engines.find(worker) !== undefined),
    swapTo(identity: string, path: string) {
      const { set, transition } = swaps.deployments.all[0]!;
      set.signal({ identity, path, transition, reset: 'all', mover: 'router' });
    },
    of: swaps.engines.of.bind(swaps.engines),
    targetsOf: swaps.engines.targetsOf.bind(swaps.engines),
  };
  const tinkerParts = { live, fleet, dispatch, log, policyFor, models: () => models, state: parts.store, fullWeights };
  const tinker = config.tinker ? (await import('../tinker/tinker.ts')).startTinker(tinkerParts) : null;
  const own: { isOwn: (path: string) => boolean } = { isOwn: () => false };
  const rl = rlControl({ fleet, dispatch, paths: new ControlPaths(config), own });
  const given = [rl, ...(swaps?.plugins ?? []), ...plugins, ...(tinker?.plugins ?? []), ...(recorder?.plugins ?? [])];
  const builtIns: BuiltIns<BuiltInPlugin> = {
    ...recorderPlugins(recorder, {
      inFlight: () => inFlight,
      isDraining: () => parts.ports.data.isDraining,
      endSession: (session, tenant) => void parts.choosing.control.endSession(session, tenant),
    }),
    'rollout-fields': async () => (await import('../rollout-fields/index.ts')).rolloutFields,
  };
  const loaded = await startPlugins(given, { ...parts, dispatch, builtIns });
  closers.add(() => loaded.close());
  // The names of deployments come on all paths.
  const scope = config.fireworksNames ?? (swaps === null ? 'inference' : 'all');
  const hasRolloutFields = loaded.plugins.some(({ name }) => name === 'rollout-fields');
  const fireworks =
    scope === 'off'
      ? []
      : (await import('../plugins/fireworks/plugins.ts')).fireworksPlugins(scope, {
          fleet,
          models,
          log,
          hasRolloutFields,
        });
  // It learns ids from the bodies of responses, which a picker does not get.
  const responses =
    config.pickerPort === undefined ? storedResponses(fleet, bodyThread, parts.store.open('responses')) : null;
  const resumeParts = {
    resumesAll: config.resume === 'all',
    maxRetries: () => maxRetries(live.current),
    weights: swaps?.engines ?? null,
    labels,
  };
  const resume = config.resume === 'off' ? null : new (await import('../resume/resume.ts')).Resume(resumeParts);
  return { ...parts, recorder, tinker, swaps, loaded, fireworks, responses, resume, own };
}
