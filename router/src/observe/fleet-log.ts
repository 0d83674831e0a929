import { noAvailableWorkers } from '../fleet/availability.ts';
import type { Breakers } from '../fleet/breakers.ts';
import type { Fleet, FleetEvent } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Logger } from './log.ts';

/** Logs added and removed workers, and when no worker is available for new requests. */
export function fleetLog(log: Logger, fleet: Fleet, breakers: Breakers): (event: FleetEvent, worker: Worker) => void {
  /** null until a worker is available. */
  let wasAvailable: boolean | null = null;
  return (event, worker) => {
    if (event !== 'changed') log.info({ worker: worker.url }, `worker ${event}`);
    const isAvailable = fleet.servesPairs
      ? (['prefill', 'decode'] as const).every((role) => fleet.eligible.some((each) => each.role === role))
      : fleet.eligible.length > 0;
    if (isAvailable === (wasAvailable ?? false)) return;
    const isFirst = wasAvailable === null;
    wasAvailable = isAvailable;
    const counts = { eligible: fleet.eligible.length, workers: fleet.workers.length };
    if (!isAvailable) {
      const detail = noAvailableWorkers(fleet, breakers).message;
      log.warn({ ...counts, detail }, 'no worker is available: new requests are refused');
    } else if (!isFirst) log.info(counts, 'workers are available again');
  };
}
