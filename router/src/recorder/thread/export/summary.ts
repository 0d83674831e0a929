import type { TurnOutline } from '../store/store.ts';
import { latencyOf } from '../../shared/turn.ts';
import { groupOf, leavesOf } from './trajectory.ts';

/** What a listing says of a session. */
export function summaryOf(turns: readonly TurnOutline[]) {
  const first = turns[0]!;
  const lengths = leavesOf(turns).map(({ keeps, tokens }) => keeps + tokens);
  return {
    session: first.session,
    group: groupOf(turns),
    tenant: first.tenant,
    turns: turns.length,
    /** Lines that the tree of its turns has: one, where it never branched. */
    trajectories: lengths.length,
    /** false: of some turn the tokens are not known, only its text. */
    exact: turns.every((turn) => turn.isExact !== false),
    /** Of the longest. */
    tokens: largest(lengths),
    models: unique(turns.map(({ model }) => model)),
    /** null among them: of some tokens it is not known. */
    versions: unique(turns.flatMap(({ versions }) => versions.map(({ version }) => version))),
    started_at_ms: -largest(turns.map(({ startedAtMs }) => -startedAtMs)),
    ended_at_ms: largest(turns.map(endMs)),
  };
}

/**
 * The figures of a session's turns together: how long they waited and took, what was cached, who did the work. Where an engine
 * does not say how many tokens there were, a turn is left out of what needs that.
 */
export function metricsOf(turns: readonly TurnOutline[]) {
  const counted = turns.filter(({ promptTokens, cachedTokens }) => (promptTokens ?? 0) > 0 && cachedTokens !== null);
  const countedTokens = sum(counted.map((turn) => turn.promptTokens));
  const cachedTokens = sum(counted.map((turn) => turn.cachedTokens));
  /** What engines answered in one piece says nothing of the time to a first token, nor of the pace after it. */
  const streamed = turns.filter(({ ttftMs }) => ttftMs !== null);
  const finished = streamed.filter(({ outputTokens, generationMs }) => (outputTokens ?? 0) > 0 && generationMs > 0);
  const generationSecs = sum(finished.map(({ generationMs }) => generationMs)) / 1_000;
  const outputTokens = sum(finished.map((turn) => turn.outputTokens));
  return {
    session: turns[0]!.session,
    turns: turns.length,
    /** The first two of event streams only. */
    ttft_ms: spread(streamed.map(({ ttftMs }) => ttftMs!)),
    generation_latency_ms: spread(streamed.map(({ generationMs }) => generationMs)),
    latency_ms: spread(turns.map(latencyOf)),
    prompt_tokens: sum(turns.map((turn) => turn.promptTokens)),
    /** null: no engine reported it. */
    cached_tokens: counted.length === 0 ? null : cachedTokens,
    /** The share of prompt tokens that were in the engine's cache; null likewise. */
    cache_hit_rate: countedTokens === 0 ? null : cachedTokens / countedTokens,
    output_tokens: sum(turns.map((turn) => turn.outputTokens)),
    output_tokens_per_second: generationSecs === 0 ? null : outputTokens / generationSecs,
    /** How many turns each did. */
    engines: tally(turns.map(({ worker }) => worker)),
    /** How often a turn was elsewhere than the one that it goes on from. */
    engine_changes: engineChanges(turns),
    versions: unique(turns.flatMap(({ versions }) => versions.map(({ version }) => version))),
    /** Sampled tokens whose logprob is not known. */
    unknown_logprobs: sum(turns.map(({ unknownLogprobs }) => unknownLogprobs)),
    finish_reasons: tally(turns.map(({ finishReason }) => finishReason ?? '')),
    drifts: tally(turns.flatMap(({ drift }) => (drift === null ? [] : [drift.kind]))),
  };
}

/** What is not known is left out. */
const sum = (numbers: readonly (number | null)[]): number =>
  numbers.reduce<number>((total, number) => total + (number ?? 0), 0);
/** `Math.max(...numbers)` has no room for the hundreds of thousands that one key may have. */
const largest = (numbers: readonly number[]): number => numbers.reduce((most, number) => Math.max(most, number));
const unique = <T>(list: readonly T[]): T[] => [...new Set(list)];
const endMs = (turn: TurnOutline): number => turn.startedAtMs + latencyOf(turn);

function tally(texts: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const text of texts) counts[text] = (counts[text] ?? 0) + 1;
  return counts;
}

/** null: there are none. */
function spread(numbers: readonly number[]) {
  if (numbers.length === 0) return null;
  const sorted = numbers.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
  return { mean: sum(sorted) / sorted.length, p50: at(0.5), p95: at(0.95), max: sorted.at(-1)!, sum: sum(sorted) };
}

function engineChanges(turns: readonly TurnOutline[]): number {
  const workers = new Map(turns.map(({ id, worker }) => [id, worker]));
  return turns.filter(({ parent, worker }) => (workers.get(parent ?? '') ?? worker) !== worker).length;
}
