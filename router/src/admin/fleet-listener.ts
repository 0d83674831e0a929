import type { PolicyTable } from '../choose/policy-table.ts';
import type { SlowStart } from '../choose/usable-workers.ts';
import type { HoldQueue } from '../choose/hold-queue.ts';
import type { FleetListener } from '../fleet/watch-fleet.ts';
import type { HungRequests } from '../forward/hung-requests.ts';
import { logBreaker, logHealth, logStall } from '../observe/fleet-log.ts';
import type { Logger } from '../observe/log.ts';
import type { Meters } from '../observe/meters.ts';

export interface FleetListenerParts {
  readonly log: Logger;
  readonly meters: Meters;
  readonly slowStart: SlowStart;
  readonly table: PolicyTable;
  readonly holdQueue: HoldQueue;
  readonly hungRequests: HungRequests;
}

/** What follows from what is found out of engines, beside that they get new work or not. */
export function fleetListener({
  log,
  meters,
  slowStart,
  table,
  holdQueue,
  hungRequests,
}: FleetListenerParts): FleetListener {
  return {
    onBreaker(event, worker) {
      if (event === 'closed') slowStart.begin(worker);
      if (event !== 'panic') meters.worker(worker).breakerChanged(event === 'opened' ? 'open' : event);
      logBreaker(log, event, worker);
    },
    onHealth(event, worker, detail, failedChecks = 0) {
      if (event === 'readmitted') slowStart.begin(worker);
      // A new process has none of the prompts of the old one.
      if (event === 'restarted') table.flushed(worker);
      logHealth(log, event, worker, detail, { failedChecks, waiting: () => hungRequests.waitingAt(worker) });
      if (event === 'hung') hungRequests.add(worker, detail);
    },
    onStalled: (worker) => logStall(log, worker),
    onModels: () => holdQueue.retryHeld(),
  };
}
