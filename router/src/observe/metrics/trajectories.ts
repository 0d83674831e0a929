import { type MetricSources, type MetricSpec, type Sample, type TrajectoryCounters, one } from './spec.ts';

const kept = (recorder: MetricSources['recorder'], name: keyof TrajectoryCounters): Sample[] =>
  recorder === null || recorder.state[name] < 0 ? [] : one(recorder.state[name]);

export const trajectoryMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_trajectory_stored_total',
    type: 'counter',
    help: 'Captured turns that were written to the store.',
    read: ({ recorder }) => kept(recorder, 'stored'),
  },
  {
    name: 'turnout_trajectory_dropped_total',
    type: 'counter',
    help: 'Captured turns, or parts of them, that were lost: the disk is full, the store is unavailable, or a limit is exceeded.',
    read: ({ recorder }) => kept(recorder, 'dropped'),
  },
  {
    name: 'turnout_trajectory_evicted_total',
    type: 'counter',
    help: 'Turns evicted for newer ones (--store-memory-bytes).',
    read: ({ recorder }) => kept(recorder, 'evicted'),
  },
  {
    name: 'turnout_trajectory_evicted_live_sessions_total',
    type: 'counter',
    help: 'Unfinished sessions evicted for newer turns (no end signal, and a turn within the last hour). The next turn of such a session has the drift "lost".',
    read: ({ recorder }) => kept(recorder, 'evictedLive'),
  },
  {
    name: 'turnout_trajectory_expired_total',
    type: 'counter',
    help: 'Turns deleted because their sessions were too old (--store-max-age-secs).',
    read: ({ recorder }) => kept(recorder, 'expired'),
  },
  {
    name: 'turnout_trajectory_unknown_logprobs_total',
    type: 'counter',
    help: 'Sampled tokens of captured turns whose logprob the engine did not give: null in exports.',
    read: ({ recorder }) => kept(recorder, 'unknownLogprobs'),
  },
  {
    name: 'turnout_trajectory_unknown_versions_total',
    type: 'counter',
    help: 'Captured turns with sampled tokens whose weight version is not known: null in exports.',
    read: ({ recorder }) => kept(recorder, 'unknownVersions'),
  },
  {
    name: 'turnout_trajectory_text_turns_total',
    type: 'counter',
    help: 'Captured turns of /v1/messages and /v1/responses without token ids from the engine: stored as text, with exact false in exports.',
    read: ({ recorder }) => kept(recorder, 'textTurns'),
  },
  {
    name: 'turnout_trajectory_sent_early_total',
    type: 'counter',
    help: 'Captured responses that were completed before their turns were stored (--store-wait), because the store took longer than 250 ms or is failing.',
    read: ({ recorder }) => kept(recorder, 'sentEarly'),
  },
  {
    name: 'turnout_trajectory_pending_turns',
    type: 'gauge',
    help: 'Captured turns that are not written yet.',
    read: ({ recorder }) => kept(recorder, 'pending'),
  },
  {
    name: 'turnout_trajectory_turns',
    type: 'gauge',
    help: 'Turns in the store.',
    read: ({ recorder }) => kept(recorder, 'turns'),
  },
  {
    name: 'turnout_trajectory_bytes',
    type: 'gauge',
    help: 'Size of the stored turns in bytes, if the store reports it.',
    read: ({ recorder }) => kept(recorder, 'bytes'),
  },
];
