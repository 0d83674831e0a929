import { type MetricSpec, type TinkerCounters, counter, gauge, one } from './spec.ts';

const kept =
  (name: keyof TinkerCounters): MetricSpec['read'] =>
  ({ tinker }) =>
    tinker === null ? [] : one(tinker.counts()[name]);

export const tinkerMetrics: readonly MetricSpec[] = [
  gauge('turnout_tinker_sessions', 'Open Tinker sessions.', kept('sessions')),
  gauge('turnout_tinker_sampling_sessions', 'Open sampling sessions of Tinker clients.', kept('sampling')),
  gauge('turnout_tinker_open_samples', 'Tinker samples in flight, or finished and not fetched yet.', kept('open')),
  counter(
    'turnout_tinker_samples_total',
    'Tinker samples that have ended, by outcome: done or failed.',
    (sources) =>
      (['done', 'failed'] as const).flatMap((outcome) =>
        kept(outcome)(sources).map(({ value }) => ({ labels: { outcome }, value })),
      ),
    ['outcome'],
  ),
  counter(
    'turnout_tinker_retries_total',
    'Tinker samples that were dispatched again because engines failed, aborted them or were not available.',
    kept('retried'),
  ),
  counter(
    'turnout_tinker_results_dropped_total',
    'Results of Tinker samples that were dropped before a client fetched them, because such results exceeded 256 MB.',
    kept('dropped'),
  ),
  counter(
    'turnout_tinker_adapters_loaded_total',
    'LoRA adapters that engines loaded for Tinker sampling sessions, once for each engine.',
    kept('adapters'),
  ),
];
