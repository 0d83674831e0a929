import { STATUS_CODES } from 'node:http';
import type { Exchange } from '../exchange.ts';
import type { PluginAnswer } from '../plugin.ts';
import { ownHead } from '../wire/response-head.ts';
import { COMPLETE, type ResultListener } from '../wire/result.ts';
import { sendInParts } from '../wire/send-in-parts.ts';

/** Sends a plugin's response to the client. */
export function sendAnswer(
  x: Exchange,
  { status, contentType, body }: PluginAnswer,
  listener: ResultListener<Exchange>,
): void {
  const head = ownHead(status, STATUS_CODES[status] ?? '', `content-type: ${contentType}\r\n`, body.length);
  x.isAnswerOut = true;
  listener.began?.(x, head);
  x.sink.head(head);
  const isWanted = (): boolean => x.outcome === null;
  sendInParts(x.sink, body, isWanted, () => {
    x.sink.end();
    listener.ended(x, COMPLETE);
  });
}
