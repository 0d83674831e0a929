import { type MetricSpec, each, one } from './spec.ts';

/** Generations that other workers continue (`--resume`). */
export const resumeMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_resumes_total',
    type: 'counter',
    help: 'Generations that another worker continued, by what ended the part before: cut (the connection broke), cut_hung (the engine hung) or aborted.',
    labels: ['cause'],
    read: ({ resume }) => each('cause', resume()?.resumed ?? []),
  },
  {
    name: 'turnout_unresumed_total',
    type: 'counter',
    help: 'Generations that ended early and could not be continued exactly, by reason.',
    labels: ['reason'],
    read: ({ resume }) => each('reason', resume()?.unresumed ?? []),
  },
  {
    name: 'turnout_resumed_tokens_total',
    type: 'counter',
    help: 'Sampled tokens that did not have to be sampled again because their generations were continued.',
    read: ({ resume }) => {
      const counters = resume();
      return counters === null ? [] : one(counters.resumedTokens);
    },
  },
];
