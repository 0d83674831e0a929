import { saysFailed } from '../../engines/weights.ts';
import { objectIn } from '../../kit/json-object.ts';
import type { ControlAnswer } from './control-call.ts';

/** How one engine responded to a control request. */
export interface ControlResult extends ControlAnswer {
  /** URL of the engine; the id of its worker for a client that may not know the URL. */
  readonly worker: string;
  readonly ms: number;
}

export const isDone = ({ status, body }: ControlAnswer): boolean =>
  status !== null && status >= 200 && status < 300 && !saysFailed(body.toString());

const utf8 = new TextDecoder('utf-8', { fatal: true });

const OWN_MEMBERS = ['results', 'ok', 'failed'];

/**
 * The response to a control request for several engines: `{"results":[…],"ok":n,"failed":n}`, with the status for all of them. Where all
 * failed with one error status, it has this status and the members of the first engine's response too, which clients of one engine read.
 */
export function report(results: readonly ControlResult[]): { status: number; json: string } {
  const ok = results.filter(isDone).length;
  const failed = results.length - ok;
  const own = `"results":[${results.map(line).join(',')}],"ok":${ok},"failed":${failed}`;
  const [first] = results as [ControlResult];
  const isOneError = (first.status ?? 0) >= 400 && results.every(({ status }) => status === first.status);
  if (isOneError) return { status: first.status!, json: `{${own}${membersOf(first.body)}}` };
  return { status: failed === 0 ? 200 : ok > 0 ? 207 : 502, json: `{${own}}` };
}

/** The members of a JSON object, as the engine wrote them; '' if the body is no object, or has members of a report. */
function membersOf(body: Buffer): string {
  const text = jsonValue(body).trim();
  const object = objectIn(text);
  if (object === null || OWN_MEMBERS.some((name) => Object.hasOwn(object, name))) return '';
  return Object.keys(object).length === 0 ? '' : `,${text.slice(1, -1)}`;
}

function line({ worker, status, body, error, ms }: ControlResult): string {
  const said = error === null ? `"body":${jsonValue(body)}` : `"error":${JSON.stringify(error)}`;
  return `{"worker":${JSON.stringify(worker)},"status":${status},${said},"ms":${Math.round(ms * 10) / 10}}`;
}

/** JSON stays as the engine wrote it, because numbers may be beyond 2^53; anything else becomes a string. */
export function jsonValue(body: Buffer): string {
  try {
    const text = utf8.decode(body);
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(body.toString('utf8'));
  }
}
