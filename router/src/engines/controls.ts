/**
 * Paths of engines after whose success their prefix cache holds nothing: SGLang 0.5.23, vLLM 0.32.0. Weights that were
 * loaded make every cached context wrong.
 */
export const flushingPaths: ReadonlySet<string> = new Set([
  '/flush_cache',
  '/reset_prefix_cache',
  '/release_memory_occupation',
  '/sleep',
  '/update_weights',
  '/update_weights_from_disk',
  '/update_weights_from_distributed',
  '/update_weights_from_tensor',
]);
