/** A path of an engine's that steers it, in place of asking it for tokens. */
export interface Control {
  /** With `*` at its end: every path that begins so, for paths of later releases too. */
  readonly path: string;
  /** It goes to one worker, like a request: it asks for something, or is about a single engine. All others go to all. */
  readonly isForOne?: true;
  /** With GET it only looks, and goes to one worker. */
  readonly isReadByGet?: true;
  /** After its success the engine's prefix cache holds nothing: loaded weights make every cached context wrong. */
  readonly flushes?: true;
  /** After its success the engine may name another version of its weights. */
  readonly changesVersion?: true;
  /** After its success the engine may list other models: adapters are models. */
  readonly changesModels?: true;
  /** What it stops after its success, until another control starts it again. */
  readonly pauses?: 'generation' | 'memory';
  /** What it starts again after its success. */
  readonly resumes?: 'generation' | 'memory';
  /** Asking for single requests of one's own is no steering: the body tells (see `admit/stops-others.ts`). */
  readonly isForAnybody?: 'for named requests';
}

/**
 * The control paths of SGLang 0.5.23, vLLM 0.32.0 and of servers made for training on top of them: who may use them is
 * decided here, which of them go to all workers, and what is to be read anew after them. Plain questions (/model_info, /is_paused, /v1/loads) are not in
 * it, with two exceptions that tell secrets: SGLang's /server_info is all of its arguments, with its keys.
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
  { path: '/start_weight_update' },
  { path: '/start_draft_weight_update' },
  { path: '/finish_weight_update', flushes: true, changesVersion: true },
  { path: '/init_weights_send_group*', isForOne: true },
  { path: '/init_*' },
  { path: '/destroy_*' },
  { path: '/send_weights*', isForOne: true },
  { path: '/get_weights_by_name', isForOne: true },
  { path: '/get_parameter*', isForOne: true },
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
  { path: '/release_*' },
  { path: '/resume_memory_occupation', resumes: 'memory' },
  { path: '/resume*', resumes: 'generation' },
  { path: '/sleep', flushes: true, pauses: 'memory' },
  { path: '/wake_up', resumes: 'memory' },
  // Pauses and ends.
  { path: '/pause*', pauses: 'generation' },
  { path: '/continue_*', resumes: 'generation' },
  { path: '/abort_request', isForAnybody: 'for named requests' },
  { path: '/abort_requests', isForAnybody: 'for named requests' },
  { path: '/inference/v1/abort_requests', isForAnybody: 'for named requests' },
  { path: '/slow_down' },
  { path: '/shutdown', isForOne: true },
  // The process itself.
  { path: '/collective_rpc', changesVersion: true },
  { path: '/scale_elastic_ep', isForOne: true },
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
  { path: '/server_info', isForOne: true },
  { path: '/get_server_info', isForOne: true },
];

/** Paths that steer unless the body names the requests that it is about (see `admit/stops-others.ts`). */
export const pathsToldByBody: ReadonlySet<string> = new Set(
  controls.filter(({ isForAnybody }) => isForAnybody !== undefined).map(({ path }) => path),
);

/** No call of an engine's has more; judging ever more of them would be work for nothing. */
const MAX_SEGMENTS = 16;

/**
 * Finds paths in a list of them, whatever stands before: engines started with a `--root-path` answer both with and
 * without it.
 */
export class PathTable<T extends { readonly path: string }> {
  readonly #exact: ReadonlyMap<string, T>;
  readonly #beginnings: readonly (readonly [string, T])[];

  constructor(entries: readonly T[]) {
    this.#exact = new Map(entries.map((entry) => [entry.path, entry]));
    this.#beginnings = entries
      .filter(({ path }) => path.endsWith('*'))
      .map((entry) => [entry.path.slice(0, -1), entry] as const);
  }

  /** @param path in its normal form. @returns null: it is not in the list; 'endless': nobody can tell, it is too long. */
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

/** Whether a path, in its normal form, steers an engine. */
export const steersEngine = (path: string): boolean => table.find(path) !== null;

/** What the table says of a path in its normal form; null: nothing. */
export function controlOf(path: string): Control | null {
  const found = table.find(path);
  return found === 'endless' ? null : found;
}
