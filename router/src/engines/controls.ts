import { objectIn } from '../kit/json-object.ts';
import { truthOf } from '../kit/truth.ts';

/** What an engine stops and resumes; `memory`: that of the weights and of the KV cache, or of the part that the request names. */
export type Stoppable = 'generation' | 'memory' | 'kv_cache';

/** A path that controls an engine. */
export interface Control {
  /** With `*` at the end: every path with this prefix, for later releases too. */
  readonly path: string;
  /** Sent to one worker, like a generation request; all others are sent to every worker. */
  readonly isForOne?: true;
  /** With GET it only reads, and is sent to one worker. */
  readonly isReadByGet?: true;
  /** Success empties the engine's prefix cache, or makes it invalid, as new weights do. */
  readonly flushes?: true | 'unless clear_cache=false';
  /** Success may change the engine's weight version. */
  readonly changesVersion?: true;
  /** Success may change the engine's list of models: adapters are models. */
  readonly changesModels?: true;
  /** What success pauses until another control resumes it. */
  readonly pauses?: Stoppable;
  /** What success resumes. */
  readonly resumes?: Stoppable;
  /** A request that names the requests that it is about needs no admin key; the body decides (`admit/authorizer.ts`). */
  readonly needsNoAdmin?: 'for named requests';
}

/**
 * The control paths of SGLang 0.5.23, vLLM 0.33.0 and of training servers built on them. The table decides who may use
 * them, which of them are sent to all workers, and what is read again after them. Paths that only read (/model_info,
 * /is_paused, /v1/loads) are not in it, except SGLang's /server_info, which reveals all arguments including keys.
 */
export const controls: readonly Control[] = [
  // Weights.
  { path: '/update_weights', flushes: true, changesVersion: true },
  { path: '/update_weights_from_disk', flushes: true, changesVersion: true },
  { path: '/update_weights_from_distributed', flushes: true, changesVersion: true },
  { path: '/update_weights_from_tensor', flushes: true, changesVersion: true },
  { path: '/update_weights_from_ipc', flushes: true, changesVersion: true },
  { path: '/update_*', changesVersion: true },
  { path: '/reload_weights', flushes: true, changesVersion: true },
  { path: '/pull_weights', flushes: true, changesVersion: true },
  // AReaL's vLLM server (4aef98d).
  { path: '/areal_update_weights*', flushes: true, changesVersion: true },
  { path: '/areal_pause_generation', pauses: 'generation' },
  { path: '/areal_continue_generation', resumes: 'generation' },
  { path: '/areal_*' },
  { path: '/start_weight_update' },
  { path: '/start_draft_weight_update' },
  { path: '/finish_weight_update', flushes: true, changesVersion: true },
  // miles' SGLang (31f1ca9).
  { path: '/begin_weight_update' },
  { path: '/end_weight_update', flushes: true, changesVersion: true },
  // SkyRL's vLLM server (a956457): the engine's host gets a checkpoint, which `/update_weights` loads.
  { path: '/fetch_weights' },
  { path: '/init_weights_send_group*', isForOne: true },
  { path: '/init_*' },
  { path: '/destroy_*' },
  { path: '/shutdown_weight_transfer_engine' },
  { path: '/send_weights*', isForOne: true },
  { path: '/get_weights_by_name', isForOne: true },
  { path: '/get_parameter*', isForOne: true },
  // Where another process can read the weights from the engine's memory.
  { path: '/remote_instance_transfer_engine_info', isForOne: true },
  { path: '/get_remote_instance_transfer_engine_info', isForOne: true },
  { path: '/post_process_weights' },
  { path: '/weight_checker', isForOne: true },
  { path: '/weights_checker', isForOne: true },
  { path: '/set_*' },
  { path: '/load_lora*', changesModels: true },
  { path: '/unload_lora*', changesModels: true },
  // Memory and caches.
  { path: '/flush_cache', flushes: true },
  { path: '/reset_prefix_cache', flushes: true },
  { path: '/reset_*' },
  { path: '/clear_*' },
  { path: '/hicache/*', isReadByGet: true },
  { path: '/release_memory_occupation', flushes: true, pauses: 'memory' },
  { path: '/release_kv_cache_memory', flushes: true, pauses: 'kv_cache' },
  { path: '/release_*' },
  { path: '/resume_memory_occupation', resumes: 'memory' },
  { path: '/resume*', resumes: 'generation' },
  { path: '/sleep', flushes: true, pauses: 'memory' },
  { path: '/wake_up', resumes: 'memory' },
  // Pauses and aborts.
  // vLLM (0.20.2 to 0.33), in every mode.
  { path: '/pause', flushes: 'unless clear_cache=false', pauses: 'generation' },
  { path: '/pause*', pauses: 'generation' },
  { path: '/continue_*', resumes: 'generation' },
  { path: '/abort_request', needsNoAdmin: 'for named requests' },
  { path: '/abort_requests', needsNoAdmin: 'for named requests' },
  { path: '/inference/v1/abort_requests', needsNoAdmin: 'for named requests' },
  { path: '/slow_down' },
  { path: '/shutdown', isForOne: true },
  // The process itself.
  { path: '/collective_rpc', changesVersion: true },
  { path: '/scale_elastic_ep', isForOne: true },
  // An engine of a pair becomes the other half.
  { path: '/pd_role_switch', isForOne: true },
  { path: '/fault_tolerance/apply', isForOne: true },
  { path: '/start_profile' },
  { path: '/stop_profile' },
  { path: '/start_expert_distribution_record' },
  { path: '/stop_expert_distribution_record' },
  { path: '/dump_*' },
  { path: '/dumper/*' },
  { path: '/freeze_gc' },
  { path: '/configure_logging' },
  { path: '/add_external_corpus' },
  { path: '/remove_external_corpus' },
  { path: '/list_external_corpora', isForOne: true },
  { path: '/server_info', isForOne: true },
  { path: '/get_server_info', isForOne: true },
];

/** Paths that need an admin key unless the body names the requests that they are about (`admit/authorizer.ts`). */
export const pathsDecidedByBody: ReadonlySet<string> = new Set(
  controls.filter(({ needsNoAdmin }) => needsNoAdmin !== undefined).map(({ path }) => path),
);

/** No engine path has more. The limit bounds the time for hostile paths. */
const MAX_SEGMENTS = 16;

/** Finds paths in a list, with any prefix: engines with a `--root-path` answer both with and without it. */
export class PathTable<T extends { readonly path: string }> {
  readonly #exact: ReadonlyMap<string, T>;
  readonly #beginnings: readonly (readonly [string, T])[];

  constructor(entries: readonly T[]) {
    this.#exact = new Map(entries.map((entry) => [entry.path, entry]));
    this.#beginnings = entries
      .filter(({ path }) => path.endsWith('*'))
      .map((entry) => [entry.path.slice(0, -1), entry] as const);
  }

  /** @param path in its normal form. @returns null if not in the list; 'endless' if it is too long to decide */
  find(path: string): T | 'endless' | null {
    let segments = 0;
    for (let at = 0; at >= 0; at = path.indexOf('/', at + 1)) {
      const end = at === 0 ? path : path.slice(at);
      const found = this.#exact.get(end) ?? this.#beginnings.find(([beginning]) => end.startsWith(beginning))?.[1];
      if (found !== undefined) return found;
      if (++segments > MAX_SEGMENTS) return 'endless';
    }
    return null;
  }
}

const table = new PathTable(controls);

/** Whether a path in its normal form controls an engine. */
export const steersEngine = (path: string): boolean => table.find(path) !== null;

/** The entry of a path in its normal form. */
export function controlOf(path: string): Control | null {
  const found = table.find(path);
  return found === 'endless' ? null : found;
}

/** Whether success of the request empties the engine's prefix cache. @param target with the query */
export function emptiesCache({ flushes }: Control, target: string): boolean {
  if (flushes !== 'unless clear_cache=false') return flushes === true;
  const at = target.indexOf('?');
  const value = at < 0 ? null : new URLSearchParams(target.slice(at)).getAll('clear_cache').at(-1);
  return truthOf(value) !== false;
}

/** Whether the request may name a part of the memory: see `memoryTagsIn`. */
export const mayNameMemory = ({ pauses, resumes }: Control): boolean => pauses === 'memory' || resumes === 'memory';

/**
 * The parts of its memory that an engine is to release or resume: vLLM reads them from the query, SGLang from the body. null: all.
 * @param target with the query
 */
export function memoryTagsIn(target: string, body: string): readonly unknown[] | null {
  const at = target.indexOf('?');
  const named = at < 0 ? [] : new URLSearchParams(target.slice(at)).getAll('tags');
  if (named.length > 0) return named;
  const tags = objectIn(body)?.['tags'];
  return Array.isArray(tags) ? tags : null;
}

/** What a path and a method mean for control: who may send the request, and which engines get it if its client names none. */
export interface ControlRoute {
  /** The entry of the table; null: there is none, or the path is too long to tell. */
  readonly control: Control | null;
  /** The request is a control request: it needs an admin key where keys are set. True for a path that is too long to tell. */
  readonly needsAdmin: boolean;
  /** The query may name workers, and the request skips the queue. */
  readonly isAddressable: boolean;
  readonly goesToAll: boolean;
}

/** The control paths of engines, with those that options add: decides who may send a request and which engines get it. */
export class ControlPaths {
  readonly #broadcast: PathTable<{ readonly path: string }>;
  readonly #single: PathTable<{ readonly path: string }>;

  constructor(options: { readonly broadcastPaths: readonly string[]; readonly singleWorkerPaths: readonly string[] }) {
    this.#broadcast = new PathTable(options.broadcastPaths.map((path) => ({ path })));
    this.#single = new PathTable(options.singleWorkerPaths.map((path) => ({ path })));
  }

  /** @param path in its normal form */
  of(path: string, method: string): ControlRoute {
    const control = controlOf(path);
    const isBroadcast = isIn(this.#broadcast, path);
    return {
      control,
      needsAdmin: isBroadcast || steersEngine(path),
      isAddressable: control !== null || isBroadcast,
      goesToAll: isBroadcast || (goesToAll(control, method) && !isIn(this.#single, path)),
    };
  }
}

const isIn = (paths: PathTable<{ readonly path: string }>, path: string): boolean => {
  const found = paths.find(path);
  return found !== null && found !== 'endless';
};

function goesToAll(control: Control | null, method: string): boolean {
  if (control === null || control.isForOne === true) return false;
  // SGLang takes many of its controls by GET too (0.5.23: /flush_cache, /start_profile).
  return method !== 'HEAD' && method !== 'OPTIONS' && !(method === 'GET' && control.isReadByGet === true);
}
