import { type MetricSpec, type Sample, type TinkerCounters, one } from './spec.ts';

const kept = (counters: TinkerCounters | undefined, name: keyof TinkerCounters): Sample[] =>
  counters === undefined ? [] : one(counters[name]);

/** The Tinker API. */
export const tinkerMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_tinker_sessions',
    type: 'gauge',
    help: 'Open Tinker sessions.',
    read: ({ tinker }) => kept(tinker?.counts(), 'sessions'),
  },
  {
    name: 'turnout_tinker_sampling_sessions',
    type: 'gauge',
    help: 'Open sampling sessions of Tinker clients.',
    read: ({ tinker }) => kept(tinker?.counts(), 'sampling'),
  },
  {
    name: 'turnout_tinker_open_samples',
    type: 'gauge',
    help: 'Tinker samples in flight, or finished and not fetched yet.',
    read: ({ tinker }) => kept(tinker?.counts(), 'open'),
  },
  {
    name: 'turnout_tinker_samples_total',
    type: 'counter',
    help: 'Tinker samples that have ended, by outcome: done or failed.',
    labels: ['outcome'],
    read: ({ tinker }) => {
      const counters = tinker?.counts();
      return (['done', 'failed'] as const).flatMap((outcome) =>
        kept(counters, outcome).map(({ value }) => ({ labels: { outcome }, value })),
      );
    },
  },
  {
    name: 'turnout_tinker_retries_total',
    type: 'counter',
    help: 'Tinker samples that were dispatched again because engines failed, aborted them or were not available.',
    read: ({ tinker }) => kept(tinker?.counts(), 'retried'),
  },
  {
    name: 'turnout_tinker_results_dropped_total',
    type: 'counter',
    help: 'Results of Tinker samples that were dropped before a client fetched them, because such results exceeded 256 MB.',
    read: ({ tinker }) => kept(tinker?.counts(), 'dropped'),
  },
  {
    name: 'turnout_tinker_adapters_loaded_total',
    type: 'counter',
    help: 'LoRA adapters that engines loaded for Tinker sampling sessions, once for each engine.',
    read: ({ tinker }) => kept(tinker?.counts(), 'adapters'),
  },
];
