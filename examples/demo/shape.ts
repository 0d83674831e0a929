import type { BatchShape } from '../../router/src/batch/agent-batch.ts';

export const ENGINES = 4;
/** All engines together hold about a third of the sessions' contexts. */
export const KV_TOKENS = 40_000;
/** Mean length of a response in tokens. */
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
