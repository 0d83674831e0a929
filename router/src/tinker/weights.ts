import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { adapterCalls } from '../engines/adapters.ts';
import { saysFailed } from '../engines/weights.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { objectIn } from '../kit/json-object.ts';
import type { Logger } from '../observe/log.ts';
import { Refused } from '../plugin.ts';
import { Archives } from './archives.ts';
import type { Adapter } from './sessions.ts';

/** Engines read adapters from disks that may be slow. */
const LOAD_TIMEOUT_MS = 300_000;

const SWEEP_MS = 10_000;

const ARCHIVE = '.tar.gz';

const CONFIG = 'adapter_config.json';
/** What engines read of a checkpoint, not what a trainer goes on from (`optimizer.pt`). Writers differ in which of these files comes last. */
const FILES_READ = /^(adapter_)?config\.json$|\.safetensors$|^(adapter|pytorch)_model.*\.(bin|pt)$/;

const PATH = /^tinker:\/\/([\w.:@-]+)\/(?:sampler_weights\/)?([\w.:@-]+)$/;

/** What is wrong with a path of weights: the status and the words for the client. */
export interface NoWeights {
  readonly status: 400 | 404;
  readonly detail: string;
}

/** Replaces the weights of all engines (`--swap-snapshots`). */
export interface FullWeights {
  /** All workers share their weights: those of Tinker name no deployment, and their base model is not known. */
  areOfAll(): boolean;
  /** Starts a weight swap to the weights in this directory; nothing happens if engines have them. */
  swapTo(snapshot: string, directory: string): void;
  /** The snapshot that the worker's engine has; null: not known. */
  of(worker: Worker): string | null;
  /** Those that swaps bring to it. */
  targetsOf(worker: Worker): readonly string[];
}

export interface WeightsOptions {
  readonly template: string | undefined;
  /** null: weights are not swapped. */
  readonly full: FullWeights | null;
  /** After this time without use an adapter is unloaded. */
  readonly unusedMs: () => number;
  /** Names of the adapters of open samples. */
  readonly inUse: () => ReadonlySet<string>;
}

/** The weights at a path: an adapter, or the snapshot of full weights. */
interface Found {
  readonly adapter: Adapter | null;
  readonly snapshot: string | null;
  /** As the adapter's config says; '' for full weights. */
  readonly baseModel: string;
}

/** Where the files of a checkpoint are. */
interface Place {
  readonly directory: string;
  /** What the directory was unpacked from; null: it was there. */
  readonly archive: string | null;
  /** When the archive was last written; null: there is none. */
  readonly mtimeMs: number | null;
}

/**
 * Finds the weights of `tinker://` paths. Engines load LoRA adapters before their first sample with them; full weights become those of the
 * whole fleet by a weight swap.
 */
export class Weights {
  /** Adapters that were loaded. */
  loaded = 0;
  readonly #template: string | undefined;
  readonly #log: Logger;
  readonly #fleet: Fleet;
  readonly #full: FullWeights | null;
  readonly #archives: Archives;
  /** By engine: what it has, or is loading. */
  readonly #byEngine = new Map<string, Map<string, Promise<void>>>();
  /** Adapters that engines may have, by name, with the time of their last use (monotonic ms). */
  readonly #used = new Map<string, { readonly adapter: Adapter; readonly lastMs: number }>();
  readonly #options: WeightsOptions;
  readonly #timer: NodeJS.Timeout;

  constructor(options: WeightsOptions, fleet: Fleet, log: Logger) {
    this.#options = options;
    this.#template = options.template;
    this.#full = options.full;
    this.#log = log;
    this.#fleet = fleet;
    this.#archives = new Archives(log);
    this.#timer = setInterval(() => this.#sweep(performance.now()), SWEEP_MS).unref();
    // An engine that was away may have been started anew.
    fleet.onEvent((event, worker) => {
      if (event === 'removed' || (event === 'changed' && !worker.isHealthy)) this.#byEngine.delete(worker.engineUrl);
    });
  }

  async find(modelPath: string): Promise<Found | NoWeights> {
    const [, model, checkpoint] = PATH.exec(modelPath) ?? [];
    if (model === undefined || checkpoint === undefined || /^\.+$/.test(model) || /^\.+$/.test(checkpoint)) {
      return {
        status: 400,
        detail: `model_path must be tinker://<model_id>/sampler_weights/<checkpoint>, not ${modelPath}`,
      };
    }
    if (this.#template === undefined) {
      return { status: 400, detail: 'This server knows no checkpoints: start it with --tinker-weights.' };
    }
    const place = this.#template.replaceAll('{model_id}', model).replaceAll('{checkpoint}', checkpoint);
    const found = await this.#at(place);
    if ('problem' in found) return { status: found.status, detail: `${modelPath}: ${found.problem}` };
    const { directory, archive, mtimeMs } = found;
    const saved = await savedIn(directory);
    // A checkpoint that was saved again under its name is another one.
    const version = mtimeMs === null ? saved.version : versionAt(mtimeMs);
    if (!saved.isAdapter) return this.#findFull(modelPath, directory, `${model}.${checkpoint}`, version);
    const name = `tinker/${model}/${checkpoint}@${version}`;
    const baseModel = await baseModelIn(join(directory, CONFIG));
    return { adapter: { name, directory, archive }, snapshot: null, baseModel };
  }

  /** The directory of a checkpoint, which is unpacked if there is only its archive. */
  async #at(place: string): Promise<Place | { readonly status: 400 | 404; readonly problem: string }> {
    const directory = await stat(place).catch(() => null);
    if (directory?.isDirectory() === true) return { directory: place, archive: null, mtimeMs: null };
    const archive = place.endsWith(ARCHIVE) ? place : place + ARCHIVE;
    try {
      const unpacked = await this.#archives.unpacked(archive);
      if (unpacked !== null) return { ...unpacked, archive };
    } catch (error) {
      return { status: 400, problem: `the archive ${archive} can't be unpacked: ${(error as Error).message}` };
    }
    return { status: 404, problem: `the directory ${place} does not exist, and neither does the archive ${archive}.` };
  }

  #findFull(modelPath: string, directory: string, name: string, version: string): Found | NoWeights {
    if (this.#full?.areOfAll() !== true) {
      const how =
        this.#full === null
          ? 'Start the server with --swap-snapshots to load them.'
          : 'The workers are of several deployments, or some of none: swap the weights of one (POST /swap), and sample from its base_model.';
      return {
        status: 400,
        detail: `${modelPath}: ${directory} has no ${CONFIG}, so these are full weights. ${how}`,
      };
    }
    const snapshot = `${name.replaceAll(/[^\w.-]/g, '_')}-${version}`;
    this.#full.swapTo(snapshot, directory);
    return { adapter: null, snapshot, baseModel: '' };
  }

  /** @returns why the worker cannot sample with the model's own weights; null: it can */
  whyOthers(worker: Worker, snapshot: string): RouterError | null {
    const held = this.#full?.of(worker) ?? null;
    if (held === snapshot) return null;
    const message = `The engines have other weights now (${held ?? 'unknown'}, not ${snapshot}): create a sampling session for them.`;
    return new RouterError('weights_replaced', message);
  }

  /** @returns why no engine has these weights or gets them; null: one has, or may have */
  whyGone(snapshot: string): RouterError | null {
    const full = this.#full!;
    const { workers } = this.#fleet;
    const mayHave = workers.some((worker) => [snapshot, null].includes(full.of(worker)));
    const isComing = workers.some((worker) => full.targetsOf(worker).includes(snapshot));
    return workers.length === 0 || mayHave || isComing ? null : this.whyOthers(workers[0]!, snapshot);
  }

  /** Resolves when the worker's engine has the adapter. Rejects in words for the client. */
  load(worker: Worker, adapter: Adapter): Promise<void> {
    const { engineUrl } = worker;
    this.note(adapter);
    let adapters = this.#byEngine.get(engineUrl);
    if (adapters === undefined) this.#byEngine.set(engineUrl, (adapters = new Map()));
    let loading = adapters.get(adapter.name);
    if (loading === undefined) {
      loading = this.#load(worker, adapter);
      adapters.set(adapter.name, loading);
      const mine = adapters;
      loading.catch(() => mine.delete(adapter.name));
    }
    return loading;
  }

  /** Engines may have the adapter: it is unloaded when it was not used for long. */
  note(adapter: Adapter): void {
    this.#used.set(adapter.name, { adapter, lastMs: performance.now() });
  }

  /** No sampling session has the adapter any more. */
  unused(adapter: Adapter): void {
    // Open samples would load it again.
    if (!this.#options.inUse().has(adapter.name)) this.#unload(adapter);
  }

  /**
   * Each checkpoint is an adapter: a long run, whose sessions stay open, would fill the memory of its engines with those that nothing samples
   * from. One that is needed again is loaded again.
   */
  #sweep(nowMs: number): void {
    const inUse = this.#options.inUse();
    const unusedMs = this.#options.unusedMs();
    for (const [name, { adapter, lastMs }] of this.#used)
      if (nowMs - lastMs > unusedMs && !inUse.has(name)) this.#unload(adapter);
  }

  #unload({ name, directory, archive }: Adapter): void {
    this.#used.delete(name);
    const engines = new Map(this.#fleet.workers.map((worker) => [worker.engineUrl, worker]));
    const unloaded = [...engines].map(([engineUrl, worker]) => {
      this.#byEngine.get(engineUrl)?.delete(name);
      const { path, json } = adapterCalls(worker.engine).unload(name);
      return worker.post(path, json, LOAD_TIMEOUT_MS);
    });
    // An engine that does not have the adapter refuses, which is as good.
    const over = Promise.allSettled(unloaded);
    if (archive == null) return;
    // An engine may read from it again.
    void over.then(() => (this.#used.has(name) ? undefined : this.#archives.remove(directory)));
  }

  close(): Promise<void> {
    clearInterval(this.#timer);
    return this.#archives.close();
  }

  /** An engine that was started anew does not know the adapter any more: it is loaded again before the next try. */
  isLost(adapter: Adapter | null, status: number, words: string): boolean {
    if (adapter === null || (status !== 404 && status !== 400) || !words.includes(adapter.name)) return false;
    for (const adapters of this.#byEngine.values()) adapters.delete(adapter.name);
    return true;
  }

  async #load(worker: Worker, adapter: Adapter): Promise<void> {
    const { name, directory } = adapter;
    await this.#verify(worker, adapter);
    const calls = adapterCalls(worker.engine);
    const { path, json } = calls.load(name, directory);
    const reply = await worker.post(path, json, LOAD_TIMEOUT_MS).catch((error: unknown) => {
      throw this.#refused(name, worker, (error as Error).message, 'upstream_reset');
    });
    if ((reply.status === 200 && !saysFailed(reply.text)) || /already (been )?loaded/i.test(reply.text)) {
      // What was saved while the engine read is not what the adapter is named after.
      await this.#verify(worker, adapter).catch(async (refused: unknown) => {
        const unload = calls.unload(name);
        await worker.post(unload.path, unload.json, LOAD_TIMEOUT_MS).catch(() => {});
        throw refused;
      });
      this.loaded++;
      return;
    }
    // What FastAPI says of a path that the engine does not have. vLLM's own 404 is for a directory that it does not see (0.16 to 0.33).
    const hasNoPath = reply.status === 404 && objectIn(reply.text)?.['detail'] === 'Not Found';
    const why = hasNoPath
      ? `it has no ${path}: vLLM needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, SGLang needs --enable-lora`
      : `${reply.status} ${reply.text.slice(0, 500)}`;
    throw this.#refused(name, worker, why, 'weights_not_loaded');
  }

  /** Throws `Refused` if engines would find a later save than the one that the adapter is named after. */
  async #verify(worker: Worker, { name, directory, archive }: Adapter): Promise<void> {
    if (archive == null) {
      const { isAdapter, version } = await savedIn(directory);
      // What is removed can't be loaded, but an engine may have it.
      if (!isAdapter || name.endsWith(`@${version}`)) return;
    } else if ((await stat(directory).catch(() => null)) !== null) return;
    else {
      // Another sampling session that had it may have ended, and what was unpacked was removed.
      const unpacked = await this.#archives.unpacked(archive).catch((error: unknown) => {
        throw this.#refused(name, worker, `${archive}: ${(error as Error).message}`, 'weights_not_loaded');
      });
      if (unpacked === null || unpacked.directory === directory) return;
    }
    throw this.#refused(name, worker, `${archive ?? directory} ${SAVED_AGAIN}`, 'weights_replaced');
  }

  #refused(
    name: string,
    worker: Worker,
    why: string,
    code: 'upstream_reset' | 'weights_not_loaded' | 'weights_replaced',
  ): Refused {
    this.#log.warn({ adapter: name, worker: worker.url, error: why }, 'a LoRA adapter was not loaded');
    return new Refused(new RouterError(code, `The engine did not load the adapter ${name}: ${why}`));
  }
}

const SAVED_AGAIN =
  'was saved again since the sampling session was created. Create a sampling session for what is there now, and save each checkpoint under a name of its own.';

const versionAt = (mtimeMs: number): string => Math.round(mtimeMs).toString(36);

/** What is in the directory of a checkpoint, and which save of it. */
async function savedIn(directory: string): Promise<{ readonly isAdapter: boolean; readonly version: string }> {
  const names = await readdir(directory).catch((): string[] => []);
  const read = names.filter((name) => FILES_READ.test(name));
  const files = await Promise.all(read.map((name) => stat(join(directory, name)).catch(() => null)));
  return {
    isAdapter: names.includes(CONFIG),
    version: versionAt(Math.max(0, ...files.map((file) => file?.mtimeMs ?? 0))),
  };
}

async function baseModelIn(path: string): Promise<string> {
  try {
    const { base_model_name_or_path: name } = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
    return typeof name === 'string' ? name : '';
  } catch {
    return '';
  }
}
