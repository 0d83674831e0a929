/** A chunk line may come before the event. */
const ERROR_EVENT = /^(?:[\da-f]+[^\r\n]*\r\n)?data: ?\{\s*"error"\s*:/i;
const LOOKED_BYTES = 80;

/**
 * Whether a stream begins with an error event. vLLM 0.32 and SGLang 0.5.23 send status 200 before the work and report a later failure
 * with an event: for example that the KV cache can't be fetched because the prefill engine died.
 */
export function beginsWithError(bytes: Buffer, start: number, end: number): boolean {
  return ERROR_EVENT.test(bytes.toString('latin1', start, Math.min(end, start + LOOKED_BYTES)));
}
