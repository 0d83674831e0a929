import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';

/** Bodies above this are not looked into: naming one's own requests takes less. */
export const MAX_TOLD_BYTES = 65_536;

const finder = new MemberFinder(['abort_all', 'rid', 'request_ids']);
const spans = new Int32Array(6);

/**
 * Whether the body of an abort is, or could be, about more than the requests that it names.
 *
 * SGLang 0.5.23 (/abort_request) stops everything at `abort_all`, and every request whose id begins with `rid`: an empty
 * one fits them all. vLLM 0.32.0 (/abort_requests) stops everything where `request_ids` is missing or empty. What can't be
 * read here counts as everything: an engine may read it (Python takes UTF-16 for JSON too).
 */
export function stopsOthers(path: string, body: Buffer): boolean {
  if (body.length > MAX_TOLD_BYTES || finder.find(body, 0, body.length, spans) < 0) return true;
  const has = (member: number): boolean => spans[2 * member]! >= 0;
  const start = (member: number): number => spans[2 * member]!;
  const end = (member: number): number => spans[2 * member + 1]!;
  if (path !== '/abort_request') return !has(2) || !namesRequests(body, start(2), end(2));
  // Python's readers take 1, "yes" and more for true.
  if (has(0) && body.toString('latin1', start(0), end(0)) !== 'false') return true;
  return !has(1) || isEmptyOrNone(readString(body, start(1), end(1)));
}

const isEmptyOrNone = (text: string | null): boolean => text === null || text === '';

/** A list of ids with at least one in it, and none that is empty. */
function namesRequests(body: Buffer, start: number, end: number): boolean {
  let count = 0;
  const scanned = scanItems(body, start, end, (itemStart, itemEnd) => {
    if (isEmptyOrNone(readString(body, itemStart, itemEnd))) return false;
    count++;
    return true;
  });
  // The scan ends at the item that is no id, before the list's own end.
  return scanned === end && count > 0;
}
