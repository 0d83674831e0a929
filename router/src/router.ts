import { Closers } from './kit/closers.ts';
import { startBase } from './assembly/base.ts';
import { startChoice, startEngines } from './assembly/choice.ts';
import { startExtensions } from './assembly/extensions.ts';
import { makeOwn } from './assembly/own.ts';
import { prepareReloads } from './assembly/reload.ts';
import { makeRequestPath } from './assembly/request-path.ts';
import { checkFolder, foldersOf, makeFolder } from './config/folder.ts';
import { namedWorkers } from './config/named-workers.ts';
import type { Config } from './config/options.ts';
import { changeWorkers } from './fleet/change-workers.ts';
import { startDiscovery } from './fleet/discover/kubernetes.ts';
import type { Fleet } from './fleet/fleet.ts';
import { closingOf } from './listen/closing.ts';
import type { Dispatch } from './listen/dispatch.ts';
import { checkPorts } from './listen/ports.ts';
import type { Logger } from './observe/log.ts';
import type { Picker } from './picker/server.ts';
import type { Pipeline } from './pipeline.ts';
import type { Plugin } from './plugin.ts';
import { TICK_MS } from './wire/listener.ts';

export interface RouterParts {
  readonly plugins?: readonly Plugin[];
  readonly log?: Logger;
}

/** A running router. */
export interface Router {
  /** Where it listens, for example `http://127.0.0.1:30000`. */
  readonly url: string;
  readonly metricsUrl: string;
  /** Where it takes control requests, with `--admin-port`. */
  readonly adminUrl: string | null;
  /** With `--picker-port`; null: it is no endpoint picker. */
  readonly picker: Picker | null;
  /** What is in force now. */
  readonly config: Config;
  readonly fleet: Fleet;
  readonly pipeline: Pipeline;
  /** Sends a request of this process the way of a client's request. */
  readonly dispatch: Dispatch;
  /** Puts what `read` answers in force, and reads files of certificates and keys again; open connections go on. Never rejects. */
  reload(read?: () => Config): Promise<void>;
  /** Stops taking requests, lets those in flight finish for at most `graceMs`, then truncates them. A second call truncates them at once. */
  close(graceMs?: number): Promise<void>;
}

/** Assembles the parts and opens the ports. Rejects when that can't be done, an address is taken for example: nothing stays open then. */
export async function startRouter(config: Config, parts: RouterParts = {}): Promise<Router> {
  await checkPorts(config);
  for (const [flag, path] of foldersOf(config)) makeFolder(flag, path);
  const closers = new Closers();
  try {
    const { open } = await assemble(config, parts, closers);
    return await open();
  } catch (error) {
    // Why it does not start is what counts, not what else goes wrong on the way back.
    await closers.close().catch(() => {});
    throw error;
  }
}

/**
 * Does everything that a start does before the router opens a port, writes to the data folder or contacts an engine: loads plugins,
 * policies, the tokenizer, keys and certificates. Rejects with the words of the start.
 */
export async function checkRouter(config: Config, log: Logger): Promise<void> {
  for (const [flag, path] of foldersOf(config)) checkFolder(flag, path);
  const { dataDir: _, logDir: __, ...inMemory } = config;
  const closers = new Closers();
  try {
    await assemble(inMemory, { log }, closers);
  } finally {
    await closers.close();
  }
}

/** Makes the parts, each from those above it. `closers` gets what must be closed, as it is opened. */
async function assemble(
  config: Config,
  parts: RouterParts,
  closers: Closers,
): Promise<{ open: () => Promise<Router> }> {
  const choice = await startChoice(startEngines(startBase(config, parts.log, closers)));
  const path = makeRequestPath(await makeOwn(await startExtensions(choice, parts.plugins ?? [])));
  const { live, log, clock, ports, fleet, homes, watch, hungRequests, heap, pipeline, logs, history } = path;
  closers.add(() => ports.close());
  const addWorkers = changeWorkers(fleet, [], namedWorkers(config));

  const open = async (): Promise<Router> => {
    const discovery = await startDiscovery(config, fleet, path.random, log);
    path.found.discovery = discovery;
    closers.add(() => discovery?.close());
    const isDraining = (): boolean => ports.data.isDraining;
    const picker =
      config.pickerPort === undefined
        ? null
        : await (
            await import('./picker/server.ts')
          ).startPicker({
            ...path.picker,
            config,
            log,
            isDraining,
            discovery,
          });
    closers.add(() => picker?.close());
    path.tinker?.restore();
    const { url, adminUrl, metricsUrl } = await ports.open(path.entry, path.metricsPages);
    // Once the ports are known to be free, and before the event loop accepts a connection on the data port.
    addWorkers();
    const sweep = (): void => {
      ports.sweep();
      watch.stalls.sweep(clock.nowMs);
      hungRequests.sweep();
      homes.sweep(clock.nowMs);
      logs.sweep(clock.nowMs);
      heap.look(clock.nowMs);
      history?.sweep(clock.nowMs);
      for (const worker of fleet.workers) worker.pool.sweep(clock.nowMs);
    };
    let turn: NodeJS.Immediate | undefined;
    const ticker = setInterval(() => {
      clock.nowMs = performance.now();
      // What clients and engines sent during a stop of the process is read first (see `TimeLimit`).
      turn = setImmediate(sweep);
    }, TICK_MS);
    closers.add(() => {
      clearInterval(ticker);
      clearImmediate(turn);
    });
    if (adminUrl !== null) log.info(`admin endpoints listening on ${adminUrl}`);
    log.info(`metrics on ${metricsUrl}`);
    log.info({ policy: config.policy, workers: fleet.workers.length }, `listening on ${url}`);
    if (path.access.warning !== null) log.warn(path.access.warning);
    await path.tinker?.resume();
    if (fleet.workers.length === 0 && discovery === null)
      log.info('no workers yet: give --worker-urls, or POST /add_worker');
    const reload = prepareReloads(path);
    // An engine that loads weights stays paused if the router ends: another one that runs already does not resume it.
    const mayEnd = (): boolean => (picker?.isHandedOver ?? true) && path.swaps?.engines.isLoading !== true;
    const close = closingOf(log, pipeline, ports.listeners, closers, mayEnd);
    return {
      url,
      metricsUrl,
      adminUrl,
      picker,
      get config() {
        return live.current;
      },
      fleet,
      pipeline,
      dispatch: path.dispatcher.dispatch,
      reload: (read = () => live.current) => reload(read),
      close(graceMs) {
        picker?.drain();
        return close(graceMs);
      },
    };
  };
  return { open };
}
