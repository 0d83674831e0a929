import { RequestHead } from '../wire/request-head.ts';

/** The head of HTTP/1.1 that has these headers, with the checks of a listener. `isEmpty`: the request has no body. */
export function headOf(headers: readonly (readonly [name: string, value: string])[], isEmpty: boolean): RequestHead {
  const head = new RequestHead();
  const pseudo = new Map(headers.filter(([name]) => name.startsWith(':')));
  const line = `${pseudo.get(':method') ?? ''} ${pseudo.get(':path') ?? ''} HTTP/1.1\r\n`;
  const fields = headers.filter(
    ([name]) => !/^(:|host$|connection$|transfer-encoding$|te$|upgrade$|expect$)/.test(name),
  );
  const hasLength = fields.some(([name]) => name === 'content-length');
  const framing = isEmpty || hasLength ? '' : 'transfer-encoding: chunked\r\n';
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const bytes = Buffer.from(`${line}host: ${pseudo.get(':authority') ?? ''}\r\n${lines}${framing}\r\n`, 'latin1');
  if (head.read(bytes, 0, bytes.length) < 0)
    head.refusal ??= { status: 400, message: 'The request has no valid head.' };
  return head;
}
