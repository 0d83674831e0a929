import { STATUS_CODES } from 'node:http';
import type { Exchange } from '../exchange.ts';
import { bufferOf } from '../kit/bytes.ts';
import { PayloadOut } from '../phases/payload-out.ts';
import { ownStreamHead } from '../wire/response-head.ts';

/** Whether a response is sent while it is made, because its length is not known. For HEAD it has no body. */
export const isStreamed = (response: Response): boolean => response.headers.has('transfer-encoding');

/** Sends a response while it is made, at the pace of the client. If the client disconnects, the response is cancelled. */
export async function streamResponse(response: Response, x: Exchange): Promise<void> {
  const { sink } = x;
  let fields = '';
  for (const [name, value] of response.headers) if (name !== 'transfer-encoding') fields += `${name}: ${value}\r\n`;
  sink.head(ownStreamHead(response.status, STATUS_CODES[response.status] ?? '', fields, sink.takesFraming));
  const out = new PayloadOut(sink);
  out.isChunked = true;
  if (response.body === null) {
    sink.end();
    return;
  }
  const reader = response.body.getReader();
  let wake = (): void => {};
  x.activity = {
    abort() {
      void reader.cancel().catch(() => {});
      wake();
    },
  };
  sink.source = { resume: () => wake() };
  try {
    while (x.outcome === null) {
      const { done, value } = await reader.read();
      if (done || x.outcome !== null) break;
      out.pass(bufferOf(value), 0, value.length);
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = resolve;
      if (!sink.flush()) await promise;
    }
    if (x.outcome !== null) return;
    out.end();
    sink.end();
  } catch (error) {
    // Too late for an error response; the client must see that this one is truncated.
    if (x.outcome === null) sink.cut((error as Error).message, '');
  } finally {
    x.activity = null;
    await reader.cancel().catch(() => {});
  }
}
