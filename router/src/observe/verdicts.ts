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
  /** A decode engine fails too when the prefill engine of its pair is gone without a word. */
  const suspectTwin = (x: Exchange, worker: Worker): void => {
    for (const leg of x.placement?.legs ?? []) if (leg.worker !== worker) health.suspect(leg.worker);
  };
  const answered = (x: Exchange, worker: Worker, status: number): void => {
    if (x.isGeneration && status >= 500 && status !== 501) breakers.failed(worker, 'generation');
    else breakers.succeeded(worker, x.isGeneration);
    if (status >= 500 && x.freed === null) suspectTwin(x, worker);
  };
  /** Of a pair, whichever of the two was on trial. */
  const endTrial = (x: Exchange): void => {
    if (!x.isTrial) return;
    x.isTrial = false;
    for (const { worker } of x.placement?.legs ?? []) breakers.trialEnded(worker);
  };
  return {
    attemptFailed(x, worker, failure, detail) {
      // An idle connection's end is no fault, and its request stays with the worker.
      if (failure === 'stale') return;
      if (failure === 'status') answered(x, worker, Number(detail));
      // The health checks have found it, and find out when it works again.
      else if (failure !== 'hung') {
        breakers.failed(worker, failure === 'connect' || failure === 'reset' ? 'connection' : 'generation');
        health.suspect(worker);
      }
      if (x.answeredBy === null) endTrial(x);
    },
    finished(x) {
      const { worker } = x;
      if (worker === null) return;
      if (x.outcome === 'complete') {
        answered(x, worker, x.status);
        // Without its twin it could not have answered.
        if (x.freed !== null && x.freed !== worker) breakers.succeeded(x.freed, x.isGeneration);
      } else if (brokeOff(x)) {
        breakers.failed(worker, 'generation');
        health.suspect(worker);
      }
      endTrial(x);
    },
  };
}

/** The engine had begun its answer and did not end it, whether a byte of it had gone out (`cut`) or not (`refused`). */
const brokeOff = ({ outcome, firstByteMs, error }: Exchange): boolean =>
  (outcome === 'cut' || (outcome === 'refused' && firstByteMs > 0)) &&
  (error?.code === 'upstream_reset' || error?.code === 'stream_idle_timeout');
