import { MemberFinder, readString } from '../kit/json-scan.ts';
import { MAX_KEY_CHARS } from './routing-keys.ts';

/** What the body of a request of the Responses API says about stored responses. */
export interface PreviousResponse {
  /** null: the request continues none. */
  readonly id: string | null;
  /** false: the client asked not to store its response. */
  readonly isStored: boolean;
}

const finder = new MemberFinder(['previous_response_id', 'store']);
const spans = new Int32Array(4);

export function readPreviousResponse(body: Buffer): PreviousResponse {
  finder.find(body, 0, body.length, spans);
  const [idStart, idEnd, storeStart, storeEnd] = spans as unknown as [number, number, number, number];
  const id = idStart >= 0 && idEnd - idStart <= MAX_KEY_CHARS ? readString(body, idStart, idEnd) : null;
  return { id, isStored: storeStart < 0 || body.toString('latin1', storeStart, storeEnd) !== 'false' };
}
