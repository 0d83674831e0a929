import type { StateStore } from '../choose/state.ts';
import type { LiveConfig } from '../config/live.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Dispatch } from '../listen/dispatch.ts';
import type { Logger } from '../observe/log.ts';
import type { TinkerCounters } from '../observe/metrics/spec.ts';
import type { Plugin } from '../plugin.ts';
import { addTinkerRoutes } from './app.ts';
import { Futures } from './futures.ts';
import { KeptSamples } from './kept-samples.ts';
import { SampleRequests } from './sample-requests.ts';
import { Sampling } from './sampling.ts';
import { Sessions } from './sessions.ts';
import { Trainer } from './trainer.ts';
import { TrainerRoutes } from './trainer-routes.ts';
import { type FullWeights, Weights } from './weights.ts';

/** Prompts of a million tokens. */
const MAX_BODY_BYTES = 67_108_864;
/** An adapter that is needed again is loaded in seconds. */
const MAX_UNUSED_MS = 600_000;

export interface TinkerParts {
  readonly live: LiveConfig;
  readonly fleet: Fleet;
  /** Known once the fleet is watched. */
  readonly models: () => FleetModels;
  readonly dispatch: Dispatch;
  readonly state: StateStore;
  readonly policyFor: (x: Exchange) => string;
  /** null: weights are not swapped. */
  readonly fullWeights: FullWeights | null;
  readonly log: Logger;
}

/** A Tinker API server in front of the fleet. */
export interface Tinker {
  /** The endpoints, and what the samples need on their way. */
  readonly plugins: readonly Plugin[];
  readonly counts: () => TinkerCounters;
  /** Knows what a restart interrupted: before clients can ask for it. */
  restore(): void;
  /** Begins it: when requests can be dispatched. */
  resume(): Promise<void>;
}

export function startTinker({
  live,
  fleet,
  models,
  dispatch,
  state,
  policyFor,
  fullWeights,
  log,
}: TinkerParts): Tinker {
  const { dataDir, tinkerTrainer, tinkerWeights } = live.current;
  const kept = dataDir === undefined ? null : new KeptSamples(dataDir, log);
  const sessions = new Sessions(state.open('tinker'), () => live.current.tinkerSessionTimeoutSecs * 1000);
  const futures = new Futures();
  futures.onOver = (id) => kept?.forget(id);
  futures.onDropped = (id) => {
    const count = futures.dropped;
    if ((count & (count - 1)) === 0)
      log.warn({ future: id, count }, 'a Tinker result was dropped: results that are not fetched exceed 256 MB');
  };
  const weights = new Weights(
    {
      template: tinkerWeights,
      full: fullWeights,
      unusedMs: () => Math.min(MAX_UNUSED_MS, live.current.tinkerSessionTimeoutSecs * 1000),
      inUse: () => sampling.adapters,
    },
    fleet,
    log,
  );
  sessions.onUnused = (adapter) => weights.unused(adapter);
  // The router before this one may have loaded them.
  for (const adapter of sessions.adapters) weights.note(adapter);
  const options = live.of(({ tinkerVllmApi: vllmApi, tinkerRetrySecs, disableHealthCheck }) => ({
    vllmApi,
    retryMs: tinkerRetrySecs * 1000,
    areKindsKnown: !disableHealthCheck,
  }));
  const sampling: Sampling = new Sampling({ fleet, dispatch, futures, weights, log, policyFor, options });
  const catalogue = (): Card[] => cardsOf(fleet);
  const served = (): string[] => catalogue().map(({ model_name }) => model_name);
  const samples: SampleRequests = new SampleRequests({
    sessions,
    futures,
    sampling,
    weights,
    kept,
    maxOpen: () => live.current.tinkerMaxSamples,
    problemOf: async (model) => {
      // A router that has just started does not know yet what its engines serve; and some engines list nothing.
      if (fleet.workers.some(({ models: listed }) => (listed?.size ?? 0) === 0)) return null;
      if (!models().isServed(model)) await models().lookAgain();
      if (models().isServed(model)) return null;
      return `No engine serves ${model}. Served: ${served().join(', ')}.`;
    },
    baseModelFor: async (names, isAny) => {
      const findNamed = (): string | undefined => names.find((name) => served().includes(name));
      if (findNamed() === undefined) await models().lookAgain();
      const [first = names[0] ?? '', ...others] = served();
      return findNamed() ?? (others.length === 0 || isAny ? first : { served: served() });
    },
    learn: tinkerTrainer === undefined ? null : (id, x) => trainerRoutes!.learn(id, x),
  });
  const flush = (): Promise<void> => state.flush();
  const trainerRoutes =
    tinkerTrainer === undefined
      ? null
      : new TrainerRoutes({ trainer: new Trainer(tinkerTrainer), sessions, samples, models: catalogue, flush });
  const context = {
    sessions,
    futures,
    samples,
    models: catalogue,
    flush,
    pollMs: () => live.current.tinkerPollSecs * 1000,
    orElse: trainerRoutes?.orElse ?? null,
  };
  return {
    plugins: [
      {
        ...sampling.plugin,
        maxBodyBytes: MAX_BODY_BYTES,
        routes({ forClients }) {
          trainerRoutes?.addTo(forClients);
          addTinkerRoutes(forClients, context);
        },
        async close() {
          sessions.stop();
          futures.close();
          await sampling.close();
          await weights.close();
          await kept?.close();
        },
      },
    ],
    counts: () => ({
      ...sessions.counts,
      open: futures.size,
      dropped: futures.dropped,
      ...sampling.counts,
      adapters: weights.loaded,
    }),
    restore: () => samples.restore(),
    async resume() {
      const count = await samples.resume();
      if (count > 0) log.info({ samples: count }, 'Tinker samples that were open are sampled again');
    },
  };
}

interface Card {
  readonly model_name: string;
  readonly max_context_length?: number;
}

/** What engines list, without adapters (those have a parent). */
function cardsOf(fleet: Fleet): Card[] {
  const cards = new Map<string, Card>();
  for (const { models } of fleet.workers) {
    for (const [name, json] of models ?? []) {
      const { parent = null, max_model_len: length } = JSON.parse(json) as {
        parent?: unknown;
        max_model_len?: unknown;
      };
      if (parent !== null || cards.has(name)) continue;
      cards.set(name, { model_name: name, ...(typeof length === 'number' ? { max_context_length: length } : {}) });
    }
  }
  return [...cards.values()];
}
