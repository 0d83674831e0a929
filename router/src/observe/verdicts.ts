import type { Exchange } from '../exchange.ts';
import type { Breakers } from '../fleet/breakers.ts';
import type { Health } from '../fleet/health.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Observer } from './observer.ts';

/**
 * What exchanges say of their workers, told to the breakers and, where the engine may be gone, to the health checks.
 *
 * An engine is to blame for connections that fail or break, for answers that are none, and for 5xx to a model's work. A 4xx is
 * its client's fault, and so is leaving; 501 says what it is, not how it is.
 */
export function verdicts(breakers: Breakers, health: Health): Observer {
  const answered = (x: Exchange, worker: Worker, status: number): void => {
    if (x.isGeneration && status >= 500 && status !== 501) breakers.failed(worker, 'generation');
    else breakers.succeeded(worker, x.isGeneration);
  };
  const endTrial = (x: Exchange, worker: Worker): void => {
    if (!x.isTrial) return;
    x.isTrial = false;
    breakers.trialEnded(worker);
  };
  return {
    attemptFailed(x, worker, failure, detail) {
      // An idle connection's end is no fault, and its request stays with the worker.
      if (failure === 'stale') return;
      if (failure === 'status') answered(x, worker, Number(detail));
      else {
        breakers.failed(worker, failure === 'connect' || failure === 'reset' ? 'connection' : 'generation');
        health.suspect(worker);
      }
      endTrial(x, worker);
    },
    finished(x) {
      const { worker } = x;
      if (worker === null) return;
      if (x.outcome === 'complete') answered(x, worker, x.status);
      else if (brokeOff(x)) {
        breakers.failed(worker, 'generation');
        health.suspect(worker);
      }
      endTrial(x, worker);
    },
  };
}

/** The engine had begun its answer and did not end it, whether a byte of it had gone out (`cut`) or not (`refused`). */
const brokeOff = ({ outcome, firstByteMs, error }: Exchange): boolean =>
  (outcome === 'cut' || (outcome === 'refused' && firstByteMs > 0)) &&
  (error?.code === 'upstream_reset' || error?.code === 'stream_idle_timeout');
