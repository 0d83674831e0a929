import { type MetricSpec, buckets, each, one } from './spec.ts';

/** Sessions: how many are open, which moves they made, and how long their requests were held. */
export const sessionMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_open_sessions',
    type: 'gauge',
    help: 'Sessions with a request in the last --session-ttl-secs whose end was not signalled; at most 100,000 are counted.',
    read: ({ places }) => one(places.size),
  },
  {
    name: 'turnout_session_moves_total',
    type: 'counter',
    help: 'Requests that went to another worker than the request of their session before them, by reason.',
    read: ({ places }) => each('reason', places.movesByReason),
  },
  {
    name: 'turnout_held_seconds',
    type: 'histogram',
    help: 'Seconds that requests were held by their policy or as all workers were full, for requests that were held at all.',
    read: ({ meters }) => buckets('turnout_held_seconds', meters.held),
  },
];
