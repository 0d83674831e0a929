/** The chunk line before it, if there is one, is at the beginning of the read, as the stream is. */
const ERROR_EVENT = /^(?:[\da-f]+[^\r\n]*\r\n)?data: ?\{\s*"error"\s*:/i;
const LOOKED_BYTES = 80;

/**
 * Whether a stream begins with the news that it failed. vLLM (0.32) and SGLang (0.5.23) send status 200 before they begin the work, and
 * tell by an event what fails then: in a decode engine most of all that the KV is not to be had, since its prefill engine died.
 */
export function beginsWithError(bytes: Buffer, start: number, end: number): boolean {
  return ERROR_EVENT.test(bytes.toString('latin1', start, Math.min(end, start + LOOKED_BYTES)));
}
