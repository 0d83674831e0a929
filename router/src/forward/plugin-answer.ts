import { STATUS_CODES } from 'node:http';
import type { Exchange } from '../exchange.ts';
import type { PluginAnswer } from '../plugin.ts';
import { type ResponseHead, ownHead } from '../wire/response-head.ts';
import { sendInParts } from '../wire/send-in-parts.ts';

interface AnswerListener {
  onAnswerBegins(x: Exchange, head: ResponseHead): void;
  onComplete(x: Exchange): void;
}

/** Sends a plugin's response to the client. */
export function sendAnswer(x: Exchange, { status, contentType, body }: PluginAnswer, listener: AnswerListener): void {
  const head = ownHead(status, STATUS_CODES[status] ?? '', `content-type: ${contentType}\r\n`, body.length);
  x.isAnswerOut = true;
  listener.onAnswerBegins(x, head);
  x.sink.head(head);
  const isWanted = (): boolean => x.outcome === null;
  sendInParts(x.sink, body, isWanted, () => {
    x.sink.end();
    listener.onComplete(x);
  });
}
