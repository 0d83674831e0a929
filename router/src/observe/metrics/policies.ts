import type { IndexSize } from '../../choose/policy.ts';
import type { PolicyCounts } from '../meters.ts';
import { type MetricSpec, type Sample, counter, gauge } from './spec.ts';

const reported = 'for responses whose engine reports cached tokens and whose policy predicted them';

const byPolicy = (name: string, help: string, read: (counts: PolicyCounts) => number): MetricSpec =>
  counter(name, help, ({ policyMeters }) => samples(policyMeters.byPolicy, read), ['policy']);

const ofIndex = (name: string, help: string, read: (size: IndexSize) => number): MetricSpec =>
  gauge(name, help, ({ table }) => samples(table.indexSizes(), read), ['policy']);

const samples = <T>(byName: ReadonlyMap<string, T>, read: (of: T) => number): Sample[] =>
  Array.from(byName, ([policy, of]) => ({ labels: { policy }, value: read(of) }));

export const policyMetrics: readonly MetricSpec[] = [
  counter(
    'turnout_policy_decisions_total',
    'Choices of a worker, by policy and reason: new (first request of a session), home (where the session was before), moved, retry, target (the client named the worker), policy (no session).',
    ({ policyMeters }) =>
      [...policyMeters.byPolicy].flatMap(([policy, { decisions }]) =>
        Object.entries(decisions)
          .filter(([, value]) => value > 0)
          .map(([reason, value]) => ({ labels: { policy, reason }, value })),
      ),
    ['policy', 'reason'],
  ),
  byPolicy(
    'turnout_policy_predicted_cached_tokens_total',
    `Prompt tokens that the policy took to be in the prompt cache of the worker that it chose, ${reported}.`,
    ({ predictedTokens }) => predictedTokens,
  ),
  byPolicy(
    'turnout_policy_reported_cached_tokens_total',
    `Prompt tokens that were in the prompt cache of the worker, ${reported}.`,
    ({ reportedTokens }) => reportedTokens,
  ),
  byPolicy(
    'turnout_policy_missed_cached_tokens_total',
    `Differences between predicted and reported cached tokens of single requests, added up, ${reported}.`,
    ({ missedTokens }) => missedTokens,
  ),
  byPolicy('turnout_policy_prompt_tokens_total', `Prompt tokens, ${reported}.`, ({ promptTokens }) => promptTokens),
  ofIndex(
    'turnout_policy_index_blocks',
    'Blocks in the prefix index of a policy: of prompts that workers were sent (rollout, cache_aware; limit --max-tree-size), or that engines report in their KV caches (kv_aware).',
    ({ blocks }) => blocks,
  ),
  ofIndex(
    'turnout_policy_index_bytes',
    'Memory of the prefix index of a policy, in bytes. That of rollout and cache_aware does not shrink.',
    ({ bytes }) => bytes,
  ),
];
