import type { Lane } from './lane.ts';
import { MAX_SEQUENCES, prefillSecs, stepSecs } from './speed.ts';

/** Weight of keeping group mates apart: their lengths are alike, so together they finish late together. */
const GROUP_WEIGHT = 0.3;
/** Answers that usually share a step with one: what a step costs each of them. */
const USUAL_BATCH = 64;
/** Share of an engine's KV cache that can be filled before it must evict or preempt. */
const KV_USABLE = 0.95;
/** Seconds charged for a whole KV cache of overflow, and for a whole batch of sequences too many. */
const KV_OVERFLOW_SECS = 20;
const BATCH_OVERFLOW_SECS = 5;

/** Work that looks for a place; tokens. */
export interface Work {
  readonly promptTokens: number;
  /** Expected tokens of the answer. */
  readonly answerTokens: number;
  readonly isFirstTurn: boolean;
}

/** What a worker would cost, in seconds, term by term. Filled anew by each `costAt`. */
export interface CostTerms {
  /** Prompts already sent there, still to be read. */
  queue: number;
  /** Reading the part of this prompt that it does not hold. */
  prefill: number;
  /** This answer, at that engine's step time. */
  decode: number;
  /** The delay put on everybody already there. */
  others: number;
  /** Group mates already there. */
  mates: number;
  /** More context or sequences than it can hold at once. */
  overflow: number;
}

export const noCost = (): CostTerms => ({ queue: 0, prefill: 0, decode: 0, others: 0, mates: 0, overflow: 0 });

/**
 * What it costs everybody, in seconds, to place `work` at `lane`, which holds `cachedTokens` of its prompt.
 *
 * Counting the others' delay is what spreads sessions when contexts outgrow the fleet's KV, and a cached prefix being cheap is
 * what keeps them where they are otherwise: stickiness is not a rule here.
 *
 * @param mates how many of its group were placed there
 */
export function costAt(
  lane: Lane,
  work: Work,
  cachedTokens: number,
  mates: number,
  nowMs: number,
  terms: CostTerms,
): number {
  const { speed, sequences, kvTokens } = lane;
  const { promptTokens, answerTokens } = work;
  const prefill = prefillSecs(speed, cachedTokens, promptTokens - cachedTokens);
  const contextTokens = promptTokens + answerTokens / 2;
  // What each of its steps adds to everybody's.
  const share = answerTokens * (speed.sequence + speed.kvToken * contextTokens);
  terms.queue = Math.max(0, lane.queueEndMs - nowMs) / 1000;
  terms.prefill = prefill;
  terms.decode = answerTokens * stepSecs(speed, sequences + 1, kvTokens + contextTokens);
  terms.others = sequences * (prefill + share);
  terms.mates =
    work.isFirstTurn && mates > 0
      ? GROUP_WEIGHT *
        Math.min(1, answerTokens / promptTokens) *
        mates *
        (share + (answerTokens * speed.step) / USUAL_BATCH) *
        (1 + sequences)
      : 0;
  const slow = lane.slowness.decode;
  const kvOver = kvTokens + promptTokens + answerTokens - KV_USABLE * lane.capacityTokens;
  const batchOver = sequences + 1 - MAX_SEQUENCES;
  terms.overflow =
    (kvOver > 0 ? (slow * KV_OVERFLOW_SECS * kvOver) / lane.capacityTokens : 0) +
    (batchOver > 0 ? (slow * BATCH_OVERFLOW_SECS * batchOver) / MAX_SEQUENCES : 0);
  return terms.queue + terms.prefill + terms.decode + terms.others + terms.mates + terms.overflow;
}
