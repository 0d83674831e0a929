import type { Config } from '../config/options.ts';
import type { AnswerTimeouts } from './answer-timer.ts';

export interface RetryOptions {
  readonly maxRetries: number;
  /** Retries of work that an engine may have begun. */
  readonly maxBegunRetries: number;
  readonly initialBackoffMs: number;
  readonly maxBackoffMs: number;
  readonly backoffMultiplier: number;
  /** A delay is changed at random by at most this fraction of it. */
  readonly jitterFactor: number;
  /** Statuses after which another worker is tried. */
  readonly statuses: ReadonlySet<number>;
  /** A worker that asks to wait longer than this is not tried again. */
  readonly retryAfterMaxMs: number;
  /** Retries after an error status, as a fraction of all requests. */
  readonly budget: number;
}

export interface ForwardOptions {
  readonly retries: RetryOptions;
  /** A request whose worker hangs goes to another one. */
  readonly retryHung: boolean;
  readonly answerTimeouts: AnswerTimeouts;
  /** Answers name their worker, and why it was chosen. */
  readonly workerHeader: boolean;
}

/** 0: none. */
export const maxRetries = ({ disableRetries, retryMaxRetries }: Config): number =>
  disableRetries ? 0 : retryMaxRetries;

export const forwardOptions = (config: Config): ForwardOptions => ({
  retries: {
    maxRetries: maxRetries(config),
    // Without resume, a request that kills engines kills two.
    maxBegunRetries: config.resume === 'off' ? 1 : maxRetries(config),
    initialBackoffMs: config.retryInitialBackoffMs,
    maxBackoffMs: config.retryMaxBackoffMs,
    backoffMultiplier: config.retryBackoffMultiplier,
    jitterFactor: config.retryJitterFactor,
    statuses: new Set(config.retryStatuses),
    retryAfterMaxMs: config.retryAfterMaxSecs * 1000,
    budget: config.retryBudget,
  },
  retryHung: config.retryHung,
  answerTimeouts: {
    requestMs: config.workerWriteTimeoutSecs * 1000,
    firstByteMs: config.firstByteTimeoutSecs * 1000,
    idleMs: config.streamIdleTimeoutSecs * 1000,
  },
  workerHeader: config.workerHeader,
});
