import type { Exchange, Failure } from '../exchange.ts';
import type { Breakers } from '../fleet/breakers.ts';
import type { Health } from '../fleet/health.ts';
import { REASONS, type Worker } from '../fleet/worker.ts';
import type { Observer } from './observer.ts';

/**
 * Reports the results of exchanges to the breakers and, if the engine may be down, to the health checks.
 *
 * An engine is at fault for failed or broken connections, invalid responses, and 5xx to generation requests. A 4xx or a
 * disconnect is the client's doing, and 501 describes the engine's features.
 */
export function healthFeedback(breakers: Breakers, health: Pick<Health, 'suspect'>): Observer {
  /** A decode engine fails too if the prefill engine of its pair has crashed. */
  const suspectTwin = (x: Exchange, worker: Worker): void => {
    for (const leg of x.placement?.legs ?? []) if (leg.worker !== worker) health.suspect(leg.worker);
  };
  const answered = (x: Exchange, worker: Worker, status: number): void => {
    if (isFault(x, status)) breakers.failed(worker, 'generation');
    else breakers.succeeded(worker, x.isGeneration);
    if (status >= 500 && x.freed === null) suspectTwin(x, worker);
  };
  /** In a pair, either half may be on trial. The placement may be another one by now: a gateway chose, or the request is continued. */
  const endTrials = (x: Exchange, ended = x.trials): void => {
    for (const worker of ended) {
      if (!x.trials.includes(worker)) continue;
      x.trials = x.trials.filter((each) => each !== worker);
      breakers.trialEnded(worker);
    }
  };
  return {
    attemptFailed(x, worker, failure, detail) {
      // A closed idle connection is no fault, and its request stays with the worker.
      if (failure === 'stale') return;
      if (failure === 'status') answered(x, worker, Number(detail));
      else if (faultOfAttempt(x, worker, failure, detail) === true) {
        breakers.failed(worker, failure === 'connect' || failure === 'reset' ? 'connection' : 'generation');
        health.suspect(worker);
      }
      // Of a pair whose decode engine responds, only the prefill engine has failed.
      endTrials(x, x.answeredBy === null ? x.trials : [worker]);
    },
    /** Not only at the end: the decode engine may generate for hours. */
    prefilled(x, worker) {
      breakers.succeeded(worker, x.isGeneration);
      endTrials(x, [worker]);
    },
    finished(x) {
      const { worker } = x;
      if (worker === null) return;
      if (x.outcome === 'complete') {
        answered(x, worker, x.status!);
      } else if (brokeOff(x)) {
        breakers.failed(worker, 'generation');
        health.suspect(worker);
      }
      endTrials(x);
    },
  };
}

const isFault = ({ isGeneration }: Exchange, status: number): boolean =>
  isGeneration && status >= 500 && status !== 501;

/**
 * Whether a failed attempt counts as a failure of its worker for the breaker; null: it does not count. A requested abort is no fault. The health
 * checks have detected that an engine hangs, and will detect its end.
 */
export function faultOfAttempt(x: Exchange, worker: Worker, failure: Failure, detail: string): boolean | null {
  if (failure === 'status') return isFault(x, Number(detail));
  if (hasLostWeights(x, worker)) return null;
  return ['stale', 'aborted', 'hung', 'cut_hung'].includes(failure) ? null : true;
}

/** The same for the end of a request that has a worker. */
export function faultOfEnd(x: Exchange): boolean | null {
  if (x.outcome === 'complete') return isFault(x, x.status!);
  return brokeOff(x) ? true : null;
}

/** The engine began its response and did not complete it. */
function brokeOff(x: Exchange): boolean {
  const { outcome, firstByteMs, error, worker } = x;
  return (
    (outcome === 'cut' || (outcome === 'refused' && firstByteMs !== null)) &&
    (error?.code === 'upstream_reset' || error?.code === 'stream_idle_timeout') &&
    !hasLostWeights(x, worker!)
  );
}

/** The router itself ends what an engine generates whose weights are not known any more. It proves its health when they are. */
const hasLostWeights = ({ placement }: Exchange, worker: Worker): boolean =>
  [worker, ...(placement?.legs ?? []).map((leg) => leg.worker)].some(
    ({ reasons }) => (reasons & REASONS.version) !== 0,
  );
