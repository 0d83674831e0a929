import type { Access } from '../admit/start-access.ts';
import type { Admission } from '../admit/admission.ts';
import type { Chooser } from '../choose/choose.ts';
import { explainsOf } from '../choose/explain-choice.ts';
import type { HoldQueue } from '../choose/hold-queue.ts';
import type { BodyReader } from '../classify/body-reader.ts';
import type { KeyPlace } from '../classify/routing-keys.ts';
import type { LiveConfig } from '../config/live.ts';
import { namedWorkers } from '../config/named-workers.ts';
import type { Config } from '../config/options.ts';
import { changeWorkers } from '../fleet/change-workers.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetWatch } from '../fleet/watch-fleet.ts';
import type { WorkerTls } from '../fleet/worker-tls.ts';
import type { Log } from '../observe/log.ts';
import type { RetryBudget } from '../wire/request-body.ts';
import type { Ports } from '../listen/ports.ts';
import type { Choosing } from './policy-control.ts';

export interface ReloadParts {
  readonly live: LiveConfig;
  readonly logging: Log;
  readonly ports: Ports;
  readonly workerTls: WorkerTls;
  readonly access: Access;
  readonly fleet: Fleet;
  readonly watch: FleetWatch;
  readonly retryBudget: RetryBudget;
  readonly admission: Admission;
  readonly holdQueue: HoldQueue;
  readonly keys: { readonly places: readonly KeyPlace[] };
  readonly reader: BodyReader;
  readonly chooser: Chooser;
  readonly choosing: Choosing;
}

/**
 * Says what a reload touches, in this order, beside the options that rooms read whenever they need them (`LiveConfig.of`).
 *
 * @returns what puts what `read` answers in force; it never rejects
 */
export function prepareReloads(parts: ReloadParts): (read: () => Config) => Promise<void> {
  const { live, logging, ports, workerTls, access, fleet, choosing } = parts;
  live.beforeChange((next) => ports.prepareReload(next));
  live.beforeChange((next) => workerTls.prepareReload(next));
  live.beforeChange(() => access.prepareReload());
  live.beforeChange((next, now) => changeWorkers(fleet, namedWorkers(now), namedWorkers(next)));
  live.beforeChange((next, now) => () => takeOver(parts, next, now));
  // The last one: a new policy takes over what the old one knows, and nothing may be placed in between.
  live.beforeChange((next, now) => choosing.prepareReload(next, now));
  const log = logging.logger;
  return async (read) => {
    logging.reopen();
    try {
      const { changed, ignored } = await live.change(read());
      if (ignored.length > 0)
        log.warn({ options: ignored }, 'options changed that need a restart: they keep their old values');
      log.info({ changed, workers: fleet.workers.length }, 'configuration reloaded');
    } catch (error) {
      // What is half written, or wrong, must not take the router down.
      log.error({ error: (error as Error).message }, 'configuration not reloaded: the old one stays in force');
    }
  };
}

/** What can't fail: rooms that hold more of their options than they read anew. */
function takeOver(parts: ReloadParts, next: Config, now: Config): void {
  const { logging, fleet, watch, retryBudget, admission, holdQueue, keys, reader, chooser } = parts;
  retryBudget.limitBytes = next.retryBufferBytes;
  fleet.setCap(next.workerMaxInflight);
  admission.onOptionsChange();
  holdQueue.retryHeld();
  reader.setPlaces(keys.places);
  if (next.logLevel !== now.logLevel) logging.setLevel(next.logLevel);
  chooser.explains = explainsOf(next, logging.logger.isLevelEnabled('debug'));
  watch.watchLoad(next);
}
