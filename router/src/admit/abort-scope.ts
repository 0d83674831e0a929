import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';

/** Larger bodies are not read: the ids of a client's own requests take less. */
export const MAX_ABORT_BYTES = 65_536;

const finder = new MemberFinder(['abort_all', 'rid', 'request_ids']);
const spans = new Int32Array(6);

/**
 * Whether an abort affects, or may affect, more than the requests that its body names.
 *
 * SGLang 0.5.23 (/abort_request) aborts all requests with `abort_all`, and every request whose id begins with `rid`: an empty `rid`
 * matches all. vLLM 0.32.0 (/abort_requests) aborts all requests if `request_ids` is missing or empty. A body that can't be read here
 * counts as an abort of all requests: the engine may be able to read it (Python's JSON reader accepts UTF-16).
 */
export function affectsOthers(path: string, body: Buffer): boolean {
  if (body.length > MAX_ABORT_BYTES || finder.find(body, 0, body.length, spans) < 0) return true;
  const has = (member: number): boolean => spans[2 * member]! >= 0;
  const start = (member: number): number => spans[2 * member]!;
  const end = (member: number): number => spans[2 * member + 1]!;
  if (path !== '/abort_request') return !has(2) || !namesRequests(body, start(2), end(2));
  // Pydantic reads 1, "yes" and other values as true.
  if (has(0) && body.toString('latin1', start(0), end(0)) !== 'false') return true;
  return !has(1) || isEmptyOrNone(readString(body, start(1), end(1)));
}

const isEmptyOrNone = (text: string | null): boolean => text === null || text === '';

/** Whether the value is a list of ids: at least one, none of them empty. */
function namesRequests(body: Buffer, start: number, end: number): boolean {
  let count = 0;
  const scanned = scanItems(body, start, end, (itemStart, itemEnd) => {
    if (isEmptyOrNone(readString(body, itemStart, itemEnd))) return false;
    count++;
    return true;
  });
  // At an item that is not an id the scan stops before the end of the list.
  return scanned === end && count > 0;
}
