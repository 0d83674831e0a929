import { type MetricSpec, type SwapCounters, counter, each, gauge, histograms, one } from './spec.ts';

const read =
  (make: (counters: SwapCounters) => ReturnType<MetricSpec['read']>): MetricSpec['read'] =>
  ({ swaps }) =>
    swaps === null ? [] : make(swaps.counters);

export const swapMetrics: readonly MetricSpec[] = [
  gauge(
    'turnout_swap_engines',
    'Engines whose weights the router swaps, by state: registered, warming, serving or quarantined.',
    read(({ engines }) => each('state', engines())),
    ['state'],
  ),
  gauge(
    'turnout_swap_open_seconds',
    'Seconds since the oldest weight swap began that has not ended; 0: no swap is open.',
    read(({ openSecs }) => one(openSecs())),
  ),
  counter(
    'turnout_swaps_total',
    'Weight swaps of single engines that have ended, by outcome: done or error.',
    read(({ ended }) => each('outcome', ended)),
    ['outcome'],
  ),
  counter(
    'turnout_swap_stage_seconds_total',
    'Seconds that an engine spent in weight swaps that have ended, by stage: gate, drain, pause, load, label or resume.',
    read(({ stageSecs }) =>
      [...stageSecs].flatMap(([engine, stages]) =>
        Array.from(stages, ([stage, value]) => ({ labels: { engine, stage }, value })),
      ),
    ),
    ['engine', 'stage'],
  ),
  histograms(
    'turnout_swap_duration_seconds',
    'Seconds of a weight swap of a single engine, during which it gets no new requests: from the gate to the end.',
    [],
    ({ swaps }) => (swaps === null ? [] : [[{}, swaps.counters.swapTimes]]),
  ),
  gauge(
    'turnout_swap_waiting_requests',
    'Requests that wait in the router because the weights of their engine are being replaced.',
    read(({ waiting }) => one(waiting())),
  ),
  counter(
    'turnout_swap_refused_requests_total',
    'Requests that got 425 because the weights of their engine were being replaced.',
    read(({ refused }) => one(refused())),
  ),
];
