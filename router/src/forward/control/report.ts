import { saysFailed } from '../../engines/weights.ts';
import type { ControlAnswer } from './control-call.ts';

/** How one engine responded to a control request. */
export interface ControlResult extends ControlAnswer {
  /** URL of the engine. */
  readonly worker: string;
  readonly ms: number;
}

export const isDone = ({ status, body }: ControlAnswer): boolean =>
  status !== null && status >= 200 && status < 300 && !saysFailed(body.toString());

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** The response to a control request for several engines: `{"results":[…],"ok":n,"failed":n}`, with the status for all of them. */
export function report(results: readonly ControlResult[]): { status: number; json: string } {
  const ok = results.filter(isDone).length;
  const failed = results.length - ok;
  return {
    status: failed === 0 ? 200 : ok > 0 ? 207 : 502,
    json: `{"results":[${results.map(line).join(',')}],"ok":${ok},"failed":${failed}}`,
  };
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
