import { STATUS_CODES } from 'node:http';
import type { Exchange } from '../exchange.ts';
import { ownStreamHead } from '../wire/response-head.ts';

const CHUNK_END = Buffer.from('\r\n');
const LAST_CHUNK = Buffer.from('0\r\n\r\n');

/** Whether a response is to be sent while it is made: one whose length its maker does not know. To HEAD it has no body. */
export const isStreamed = (response: Response): boolean => response.headers.has('transfer-encoding');

/** Sends what is made while it is sent, no faster than its client takes it. A client that leaves ends the making. */
export async function streamResponse(response: Response, x: Exchange): Promise<void> {
  const { sink } = x;
  let fields = '';
  for (const [name, value] of response.headers) if (name !== 'transfer-encoding') fields += `${name}: ${value}\r\n`;
  const isChunked = sink.takesFraming;
  sink.head(ownStreamHead(response.status, STATUS_CODES[response.status] ?? '', fields, isChunked));
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
  const put = (bytes: Uint8Array): void =>
    sink.body(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), 0, bytes.length);
  try {
    while (x.outcome === null) {
      const { done, value } = await reader.read();
      if (done || x.outcome !== null) break;
      if (value.length === 0) continue;
      if (isChunked) put(Buffer.from(`${value.length.toString(16)}\r\n`));
      put(value);
      if (isChunked) put(CHUNK_END);
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = resolve;
      if (!sink.flush()) await promise;
    }
    if (x.outcome !== null) return;
    if (isChunked) put(LAST_CHUNK);
    sink.end();
  } catch (error) {
    // Too late for another answer: its client must not take this one for whole.
    if (x.outcome === null) sink.cut((error as Error).message, '');
  } finally {
    x.activity = null;
    await reader.cancel().catch(() => {});
  }
}
