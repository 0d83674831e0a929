const TRUE: ReadonlySet<string> = new Set(['1', 'on', 't', 'true', 'y', 'yes']);
const FALSE: ReadonlySet<string> = new Set(['0', 'off', 'f', 'false', 'n', 'no']);

/**
 * A JSON value as a truth value in pydantic's lax mode (2.x), by which the request models of vLLM (0.33) and SGLang (0.5.23) read their
 * members; null: it is none, and the engine refuses it or takes its default.
 */
export function truthOf(value: unknown): boolean | null {
  if (typeof value === 'boolean') return value;
  const text = typeof value === 'string' || typeof value === 'number' ? String(value).toLowerCase() : '';
  return TRUE.has(text) ? true : FALSE.has(text) ? false : null;
}
