import type { FirstPrompt, Group, GroupMember, OpenSession } from './open-sessions.ts';
import { MAX_SEQUENCES, type WorkerState, prefillSecs, stepSecs } from './worker-state.ts';

/** Weight of keeping the requests of a group apart: their lengths are alike, so together they would finish late. */
const GROUP_WEIGHT = 0.3;
/** The usual batch size: the cost of a step is shared by this many responses. */
const USUAL_BATCH = 64;
/** Share of an engine's KV cache that can be filled before it must evict or preempt. */
const KV_USABLE = 0.95;
/** Seconds charged for exceeding the KV cache by its whole size, and the batch by its whole size. */
const KV_OVERFLOW_SECS = 20;
const BATCH_OVERFLOW_SECS = 5;

/** One exchange as the rollout policy sees it. Lengths are in tokens. */
export class RolloutRequest implements GroupMember {
  /** The tracker that made it: after a change of policies it may be another policy's. */
  readonly tracker: object;
  /** null: the client named no session, or it was ended before this request was placed. */
  session: OpenSession | null;
  readonly group: Group;
  /**
   * The prompt of the session's first turn, with which all its prompts begin; without a session, that of the request.
   */
  readonly prompt: FirstPrompt;
  readonly promptTokens: number;
  /** Expected. */
  readonly answerTokens: number;
  readonly isFirstTurn: boolean;
  readonly bodyBytes: number;
  /** The field of the body that holds the prompt; '' if the body was not read. */
  readonly field: string;
  firstAt: WorkerState | null = null;
  /** Where it runs, since when, and the times that were expected. */
  placedAt: WorkerState | null = null;
  beginMs = 0;
  prefillSecs = 0;
  queueSecs = 0;
  /** When its prompt was expected to be read (monotonic ms). */
  readByMs = 0;
  /** It was held for as long as is allowed and then sent without room: its context is not kept for the next turn. */
  isGuest = false;
  /** Of the held turns it is the one to get room. */
  isNext = false;
  /** While it is held: see `rankSecs`. */
  rankSecs = 0;

  constructor(
    tracker: object,
    session: OpenSession | null,
    group: Group,
    prompt: FirstPrompt,
    promptTokens: number,
    answerTokens: number,
    bodyBytes: number,
    field: string,
  ) {
    this.tracker = tracker;
    this.session = session;
    this.group = group;
    this.prompt = prompt;
    this.promptTokens = promptTokens;
    this.answerTokens = answerTokens;
    this.isFirstTurn = session === null || session.turns === 0;
    this.bodyBytes = bodyBytes;
    this.field = field;
  }
}

/** What the cost of a request depends on, besides what is cached of it. `group`: null if it is not a first turn. */
type Placed = Pick<RolloutRequest, 'promptTokens' | 'answerTokens' | 'isFirstTurn'> & { readonly group: Group | null };

/** The cost of a worker in seconds, term by term. Each `costAt` overwrites it. */
export interface CostTerms {
  /** Prompts that were sent there and are not read yet. */
  queue: number;
  /** Reading the part of this prompt that is not cached. */
  prefill: number;
  /** This response, at that engine's step time. */
  decode: number;
  /** The delay of all requests that are already there. */
  others: number;
  /** Requests of the same group that are already there. */
  mates: number;
  /** More context or more sequences than the engine can hold at once. */
  overflow: number;
}

export const noCost = (): CostTerms => ({ queue: 0, prefill: 0, decode: 0, others: 0, mates: 0, overflow: 0 });

/**
 * The cost for all requests, in seconds, of placing a request at a worker that has `cachedTokens` of its prompt in
 * its cache.
 *
 * Stickiness is not a rule here: the cached prefix makes the home cheap, and the delay of the other requests spreads
 * the sessions once their contexts outgrow the KV cache.
 */
export function costAt(
  state: WorkerState,
  { group, promptTokens, answerTokens, isFirstTurn }: Placed,
  cachedTokens: number,
  nowMs: number,
  terms: CostTerms,
): number {
  const { speed, sequences, kvTokens } = state;
  const mates = isFirstTurn ? (group?.placed.get(state) ?? 0) : 0;
  const prefill = prefillSecs(speed, cachedTokens, promptTokens - cachedTokens);
  const contextTokens = promptTokens + answerTokens / 2;
  // How much each of its steps adds to every other request.
  const share = answerTokens * (speed.sequence + speed.kvToken * contextTokens);
  terms.queue = Math.max(0, state.queueEndMs - nowMs) / 1000;
  terms.prefill = prefill;
  terms.decode = answerTokens * stepSecs(speed, sequences + 1, kvTokens + contextTokens);
  terms.others = sequences * (prefill + share);
  terms.mates =
    mates > 0
      ? GROUP_WEIGHT *
        Math.min(1, answerTokens / promptTokens) *
        mates *
        (share + (answerTokens * speed.step) / USUAL_BATCH) *
        (1 + sequences)
      : 0;
  const slow = state.slowness.decode;
  const kvOver = kvTokens + promptTokens + answerTokens - KV_USABLE * state.capacityTokens;
  const batchOver = sequences + 1 - MAX_SEQUENCES;
  terms.overflow =
    (kvOver > 0 ? (slow * KV_OVERFLOW_SECS * kvOver) / state.capacityTokens : 0) +
    (batchOver > 0 ? (slow * BATCH_OVERFLOW_SECS * batchOver) / MAX_SEQUENCES : 0);
  return terms.queue + terms.prefill + terms.decode + terms.others + terms.mates + terms.overflow;
}
