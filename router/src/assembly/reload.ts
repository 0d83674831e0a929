import { explainsOf } from '../choose/explain-choice.ts';
import { namedWorkers } from '../config/named-workers.ts';
import type { Config } from '../config/options.ts';
import { changeWorkers } from '../fleet/change-workers.ts';
import type { Choice } from './choice.ts';

/**
 * Registers what a reload changes, in this order, beside the options that each part reads whenever it needs them (`LiveConfig.of`).
 *
 * @returns applies the configuration that `read` returns; never rejects
 */
export function prepareReloads(parts: Choice): (read: () => Config) => Promise<void> {
  const { live, logging, ports, workerTls, access, fleet, choosing } = parts;
  live.beforeChange((next) => ports.prepareReload(next));
  live.beforeChange((next) => workerTls.prepareReload(next));
  live.beforeChange(() => access.prepareReload());
  live.beforeChange((next, now) => changeWorkers(fleet, namedWorkers(now), namedWorkers(next)));
  live.beforeChange((next, now) => () => apply(parts, next, now));
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
      // A file that is half written, or wrong, must not end the router.
      log.error({ error: (error as Error).message }, 'configuration not reloaded: the old one stays in force');
    }
  };
}

/** Changes that can't fail, of parts that keep values of options. */
function apply(parts: Choice, next: Config, now: Config): void {
  const { logging, fleet, watch, retryBudget, admission, holdQueue, keys, reader, chooser } = parts;
  retryBudget.limitBytes = next.retryBufferBytes;
  fleet.setCap(next.workerMaxInflight);
  admission.onOptionsChange();
  holdQueue.retryHeld();
  reader.setPlaces(keys.places);
  if (next.logLevel !== now.logLevel) logging.setLevel(next.logLevel);
  chooser.explains = explainsOf(next, logging.logger.isLevelEnabled('debug'));
  watch.onOptionsChange(next);
}
