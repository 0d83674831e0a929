/** A path of an engine's that steers it, in place of asking it for tokens. */
interface Control {
  /** With `*` at its end: every path that begins so, for paths of later releases too. */
  readonly path: string;
  /** After its success the engine's prefix cache holds nothing: loaded weights make every cached context wrong. */
  readonly flushes?: true;
  /** Asking for single requests of one's own is no steering: the body tells (see `admit/stops-others.ts`). */
  readonly isForAnybody?: 'for named requests';
}

/**
 * The control paths of SGLang 0.5.23, vLLM 0.32.0 and of servers made for training on top of them: who may use them is
 * decided here, and after which of them a cache is empty. Plain questions (/model_info, /is_paused, /v1/loads) are not in
 * it, with two exceptions that tell secrets: SGLang's /server_info is all of its arguments, with its keys.
 */
const controls: readonly Control[] = [
  // Weights.
  { path: '/update_weights', flushes: true },
  { path: '/update_weights_from_disk', flushes: true },
  { path: '/update_weights_from_distributed', flushes: true },
  { path: '/update_weights_from_tensor', flushes: true },
  { path: '/update_weights_from_ipc', flushes: true },
  { path: '/update_*' },
  { path: '/reload_weights', flushes: true },
  { path: '/pull_weights', flushes: true },
  { path: '/start_weight_update' },
  { path: '/start_draft_weight_update' },
  { path: '/finish_weight_update', flushes: true },
  { path: '/init_*' },
  { path: '/destroy_*' },
  { path: '/send_weights*' },
  { path: '/get_weights_by_name' },
  { path: '/get_parameter*' },
  { path: '/post_process_weights' },
  { path: '/weight_checker' },
  { path: '/weights_checker' },
  { path: '/set_*' },
  { path: '/load_lora*' },
  { path: '/unload_lora*' },
  // Memory and caches.
  { path: '/flush_cache', flushes: true },
  { path: '/reset_prefix_cache', flushes: true },
  { path: '/reset_*' },
  { path: '/clear_*' },
  { path: '/hicache/*' },
  { path: '/release_memory_occupation', flushes: true },
  { path: '/release_*' },
  { path: '/resume*' },
  { path: '/sleep', flushes: true },
  { path: '/wake_up' },
  // Pauses and ends.
  { path: '/pause*' },
  { path: '/continue_*' },
  { path: '/abort_request', isForAnybody: 'for named requests' },
  { path: '/abort_requests', isForAnybody: 'for named requests' },
  { path: '/inference/v1/abort_requests', isForAnybody: 'for named requests' },
  { path: '/slow_down' },
  { path: '/shutdown' },
  // The process itself.
  { path: '/collective_rpc' },
  { path: '/scale_elastic_ep' },
  { path: '/fault_tolerance/apply' },
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
  { path: '/server_info' },
  { path: '/get_server_info' },
];

const exact = new Set(controls.map(({ path }) => path));
const beginnings = controls.filter(({ path }) => path.endsWith('*')).map(({ path }) => path.slice(0, -1));

/** Paths after whose success an engine's prefix cache holds nothing. */
export const flushingPaths: ReadonlySet<string> = new Set(
  controls.filter(({ flushes }) => flushes === true).map(({ path }) => path),
);

/** Paths that steer unless the body names the requests that it is about (see `admit/stops-others.ts`). */
export const pathsToldByBody: ReadonlySet<string> = new Set(
  controls.filter(({ isForAnybody }) => isForAnybody !== undefined).map(({ path }) => path),
);

/** No call of an engine's has more; judging ever more of them would be work for nothing. */
const MAX_SEGMENTS = 16;

/**
 * Whether a path, in its normal form, steers an engine. Whatever stands before a control path: engines started with a
 * `--root-path` answer both with and without it.
 */
export function steersEngine(path: string): boolean {
  let segments = 0;
  for (let at = 0; at >= 0; at = path.indexOf('/', at + 1)) {
    const end = at === 0 ? path : path.slice(at);
    if (exact.has(end) || beginnings.some((beginning) => end.startsWith(beginning))) return true;
    if (++segments > MAX_SEGMENTS) return true;
  }
  return false;
}
