import { type MetricSpec, type SwapCounters, buckets, each, one } from './spec.ts';

const read =
  (make: (counters: SwapCounters) => ReturnType<MetricSpec['read']>): MetricSpec['read'] =>
  ({ swaps }) =>
    swaps === null ? [] : make(swaps.counters);

/** Weight swaps. */
export const swapMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_swap_engines',
    type: 'gauge',
    help: 'Engines whose weights the router swaps, by state: registered, warming, serving or quarantined.',
    labels: ['state'],
    read: read(({ engines }) => each('state', engines())),
  },
  {
    name: 'turnout_swap_open_seconds',
    type: 'gauge',
    help: 'Seconds since the oldest weight swap began that has not ended; 0: no swap is open.',
    read: read(({ openSecs }) => one(openSecs())),
  },
  {
    name: 'turnout_swaps_total',
    type: 'counter',
    help: 'Weight swaps of single engines that have ended, by outcome: done or error.',
    labels: ['outcome'],
    read: read(({ ended }) => each('outcome', ended)),
  },
  {
    name: 'turnout_swap_stage_seconds_total',
    type: 'counter',
    help: 'Seconds that an engine spent in weight swaps that have ended, by stage: gate, drain, pause, load, label or resume.',
    labels: ['engine', 'stage'],
    read: read(({ stageSecs }) =>
      [...stageSecs].flatMap(([engine, stages]) =>
        Array.from(stages, ([stage, value]) => ({ labels: { engine, stage }, value })),
      ),
    ),
  },
  {
    name: 'turnout_swap_duration_seconds',
    type: 'histogram',
    help: 'Seconds of a weight swap of a single engine, during which it gets no new requests: from the gate to the end.',
    read: read(({ swapTimes }) => buckets('turnout_swap_duration_seconds', swapTimes)),
  },
  {
    name: 'turnout_swap_waiting_requests',
    type: 'gauge',
    help: 'Requests that wait in the router because the weights of their engine are being replaced.',
    read: read(({ waiting }) => one(waiting())),
  },
  {
    name: 'turnout_swap_refused_requests_total',
    type: 'counter',
    help: 'Requests that got 425 because the weights of their engine were being replaced.',
    read: read(({ refused }) => one(refused())),
  },
];
