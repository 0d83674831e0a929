import { type MetricSpec, type TrajectoryCounters, counter, gauge, one } from './spec.ts';

const kept =
  (name: keyof TrajectoryCounters): MetricSpec['read'] =>
  ({ recorder }) =>
    recorder === null || recorder.state[name] < 0 ? [] : one(recorder.state[name]);

export const trajectoryMetrics: readonly MetricSpec[] = [
  counter('turnout_trajectory_stored_total', 'Captured turns that were written to the store.', kept('stored')),
  counter(
    'turnout_trajectory_dropped_total',
    'Captured turns, or parts of them, that were lost: the disk is full, the store is unavailable, or a limit is exceeded.',
    kept('dropped'),
  ),
  counter('turnout_trajectory_evicted_total', 'Turns evicted for newer ones (--store-memory-bytes).', kept('evicted')),
  counter(
    'turnout_trajectory_evicted_live_sessions_total',
    'Unfinished sessions evicted for newer turns (no end signal, and a turn within the last hour). The next turn of such a session has the drift "lost".',
    kept('evictedLive'),
  ),
  counter(
    'turnout_trajectory_expired_total',
    'Turns deleted because their sessions were too old (--store-max-age-secs).',
    kept('expired'),
  ),
  counter(
    'turnout_trajectory_unknown_logprobs_total',
    'Sampled tokens of captured turns whose logprob the engine did not give: null in exports.',
    kept('unknownLogprobs'),
  ),
  counter(
    'turnout_trajectory_unknown_versions_total',
    'Captured turns with sampled tokens whose weight version is not known: null in exports.',
    kept('unknownVersions'),
  ),
  counter(
    'turnout_trajectory_text_turns_total',
    'Captured turns of /v1/messages and /v1/responses without token ids from the engine: stored as text, with exact false in exports.',
    kept('textTurns'),
  ),
  counter(
    'turnout_trajectory_sent_early_total',
    'Captured responses that were completed before their turns were stored (--store-wait), because the store took longer than 250 ms or is failing.',
    kept('sentEarly'),
  ),
  gauge('turnout_trajectory_pending_turns', 'Captured turns that are not written yet.', kept('pending')),
  gauge('turnout_trajectory_turns', 'Turns in the store.', kept('turns')),
  gauge('turnout_trajectory_bytes', 'Size of the stored turns in bytes, if the store reports it.', kept('bytes')),
];
