// What async RL asks of a stream, between the end of the warm-up and the end of the run.
import type { EngineTotals } from './engine.ts';
import type { Job } from './job.ts';
import { type Quantiles, quantiles } from './quantiles.ts';
import type { Session, Stream } from './workload.ts';

/** Times in seconds. A session lasts from its client's first send to its last token. */
export interface StreamMetrics {
  readonly turnsPerHour: number;
  readonly sessionsPerHour: number;
  /** Groups whose last session has ended. */
  readonly groupsPerHour: number;
  readonly outputTokensPerSecond: number;
  /** Share of the prompt tokens found in a prefix cache. */
  readonly hitShare: number;
  /** Of the sessions that ended. */
  readonly sessionSeconds: Quantiles;
  /** The largest age that an open session had, of those open at the end too. */
  readonly oldestOpen: number;
  /** New weights between the first and the last token of a session, as the trainer has them (`Stream.weightsSeconds`). */
  readonly staleness: Quantiles;
}

type PromptTotals = Pick<EngineTotals, 'promptTokens' | 'hitTokens'>;

interface Tally {
  turns: number;
  sessions: number;
  groups: number;
  outputTokens: number;
  promptTokens: number;
  hitTokens: number;
}

export class StreamMeter {
  readonly #stream: Stream;
  /** When each open session began, and when it had its first token. */
  readonly #open = new Map<Session, { readonly beganAt: number; firstTokenAt: number }>();
  /** Sessions that have ended, of groups that have not. */
  readonly #groups = new Map<string, number>();
  readonly #seconds: number[] = [];
  readonly #staleness: number[] = [];
  #tally: Tally = { turns: 0, sessions: 0, groups: 0, outputTokens: 0, promptTokens: 0, hitTokens: 0 };
  #isWarm = false;

  constructor(stream: Stream) {
    this.#stream = stream;
  }

  began(job: Job): void {
    this.#open.set(job.session, { beganAt: job.arrivedAt, firstTokenAt: Number.NaN });
  }

  answered(job: Job, now: number): void {
    const session = this.#open.get(job.session)!;
    if (job.turn === 0) session.firstTokenAt = job.firstTokenAt;
    const isLastOfGroup = job.isLastTurn && this.#ended(job.session);
    if (!this.#isWarm) return;
    this.#tally.turns += 1;
    this.#tally.outputTokens += job.outputTokens;
    if (!job.isLastTurn) return;
    this.#tally.sessions += 1;
    this.#tally.groups += isLastOfGroup ? 1 : 0;
    this.#seconds.push(now - session.beganAt);
    this.#staleness.push(this.#version(now) - this.#version(session.firstTokenAt));
  }

  /** The warm-up is over. */
  warm(totals: readonly PromptTotals[]): void {
    this.#isWarm = true;
    this.#tally = { turns: 0, sessions: 0, groups: 0, outputTokens: 0, ...prompts(totals) };
  }

  result(totals: readonly PromptTotals[]): StreamMetrics {
    const { seconds, warmUpSeconds } = this.#stream;
    const { turns, sessions, groups, outputTokens, promptTokens, hitTokens } = this.#tally;
    const measured = seconds - warmUpSeconds;
    const total = prompts(totals);
    const ages = Array.from(this.#open.values(), ({ beganAt }) => seconds - beganAt);
    return {
      turnsPerHour: (3600 * turns) / measured,
      sessionsPerHour: (3600 * sessions) / measured,
      groupsPerHour: (3600 * groups) / measured,
      outputTokensPerSecond: outputTokens / measured,
      hitShare: (total.hitTokens - hitTokens) / Math.max(1, total.promptTokens - promptTokens),
      sessionSeconds: quantiles(this.#seconds),
      oldestOpen: Math.max(0, ...ages, ...this.#seconds),
      staleness: quantiles(this.#staleness),
    };
  }

  /** @returns whether all sessions of its group have ended */
  #ended(session: Session): boolean {
    const { group } = session;
    this.#open.delete(session);
    const ended = (this.#groups.get(group) ?? 0) + 1;
    const isLast = ended === this.#stream.groupSize;
    if (isLast) this.#groups.delete(group);
    else this.#groups.set(group, ended);
    return isLast;
  }

  #version(seconds: number): number {
    return Math.floor(seconds / this.#stream.weightsSeconds);
  }
}

function prompts(totals: readonly PromptTotals[]): PromptTotals {
  return {
    promptTokens: totals.reduce((sum, engine) => sum + engine.promptTokens, 0),
    hitTokens: totals.reduce((sum, engine) => sum + engine.hitTokens, 0),
  };
}
