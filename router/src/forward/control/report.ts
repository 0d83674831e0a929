import type { ControlAnswer } from './control-call.ts';

/** How one engine took a control. */
export interface ControlResult extends ControlAnswer {
  /** URL of the engine. */
  readonly worker: string;
  readonly ms: number;
}

/** It did what it was told. */
export const isDone = ({ status }: Pick<ControlAnswer, 'status'>): boolean =>
  status !== null && status >= 200 && status < 300;

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** What came of a control that went to several engines: `{"results":[…],"ok":n,"failed":n}`, and the status that sums it up. */
export function report(results: readonly ControlResult[]): { status: number; json: string } {
  const ok = results.filter(isDone).length;
  const failed = results.length - ok;
  return {
    status: failed === 0 ? 200 : ok > 0 ? 207 : 502,
    json: `{"results":[${results.map(line).join(',')}],"ok":${ok},"failed":${failed}}`,
  };
}

function line({ worker, status, body, error, ms }: ControlResult): string {
  const said = error === null ? `"body":${value(body)}` : `"error":${JSON.stringify(error)}`;
  return `{"worker":${JSON.stringify(worker)},"status":${status},${said},"ms":${Math.round(ms * 10) / 10}}`;
}

/** JSON stays as the engine wrote it, with numbers of any size; anything else becomes a string. */
function value(body: Buffer): string {
  try {
    const text = utf8.decode(body);
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(body.toString('utf8'));
  }
}
