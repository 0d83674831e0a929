import { MemberFinder, keyIs, readString, scanMembers } from '../../kit/json-scan.ts';
import { dataOf } from '../../kit/sse.ts';

const QUOTE = 0x22;
const MODEL = 'model';

/** The `model` that a client sent; '' for none. Of several the last one counts. */
export function clientModel(body: Buffer): string {
  const span = new Int32Array(2);
  if (finder.find(body, 0, body.length, span) < 0 || span[0]! < 0) return '';
  return readString(body, span[0]!, span[1]!) ?? '';
}
const finder = new MemberFinder([MODEL]);

/**
 * A response with its `model` as `NAME@SNAPSHOT`: only that value is replaced. Engines (vLLM 0.33, SGLang 0.5.23) write one `model`, before
 * the choices, so the scan ends there.
 * @param name that the client used; '' for the engine's
 * @returns the same buffer if there is no such member
 */
export const labelledBody = (body: Buffer, name: string, snapshot: string): Buffer =>
  labelled(body, 0, body.length, name, snapshot);

/** The same for an event of a stream. */
export function labelledEvent(event: Buffer, name: string, snapshot: string): Buffer {
  const [start, end] = dataOf(event);
  return start < 0 ? event : labelled(event, start, end, name, snapshot);
}

function labelled(bytes: Buffer, start: number, end: number, name: string, snapshot: string): Buffer {
  let from = -1;
  let to = -1;
  scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, valueEnd) => {
    if (!keyIs(bytes, keyStart, keyEnd, MODEL)) return true;
    from = valueStart;
    to = valueEnd;
    return false;
  });
  if (from < 0) return bytes;
  const own = name === '' ? readString(bytes, from, to) : name;
  if (own === null || bytes[from] !== QUOTE) return bytes;
  const label = Buffer.from(JSON.stringify(`${own}@${snapshot}`));
  return Buffer.concat([bytes.subarray(0, from), label, bytes.subarray(to)]);
}
