import type { BatchShape } from '../../router/src/batch/agent-batch.ts';

export const ENGINES = 4;
/** Together the engines hold about a third of what the contexts of the sessions come to. */
export const KV_TOKENS = 40_000;
/** Mean length of an answer in tokens. */
export const ANSWER_TOKENS = 40;
export const policies = ['round_robin', 'consistent_hash', 'cache_aware', 'rollout'] as const;

export const shape: BatchShape = {
  sessions: 96,
  groupSize: 8,
  turns: 11,
  promptWords: 400,
  turnWords: 400,
  maxTokens: 60,
};
