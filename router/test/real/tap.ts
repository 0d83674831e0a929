import { once } from 'node:events';
import { createServer, request, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';

/** One exchange as the engine had it: what it was asked and what it answered, bodies to the byte. */
export interface Heard {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  asked: string;
  status: number;
  answerHeaders: IncomingHttpHeaders;
  answered: string;
}

export interface Tap {
  url: string;
  /** Whatever the engine was asked with a body, also what it never answered. */
  readonly posted: readonly Pick<Heard, 'path' | 'asked'>[];
  /** The last exchange about this path. Probes of the router go other ways, so they do not count. */
  last: (path: string) => Heard;
  /** All about this path, in the order in which they ended. */
  all: (path: string) => Heard[];
  close: () => void;
}

/**
 * Stands between the router and an engine and writes down what passes. Two runs of an engine differ in ids, times and
 * in how its tokens fall into events; what one run said and what the client of that run got may differ in nothing.
 */
export async function tapOn(engine: string): Promise<Tap> {
  const heard: Heard[] = [];
  const posted: Pick<Heard, 'path' | 'asked'>[] = [];
  const server = createServer((incoming, outgoing) => {
    const asked: Buffer[] = [];
    const answered: Buffer[] = [];
    const { method = '', url: path = '', headers } = incoming;
    const forwarded = request(new URL(path, engine), { method, headers, agent: false }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 0, answer.rawHeaders);
      answer.on('data', (chunk: Buffer) => {
        answered.push(chunk);
        outgoing.write(chunk);
      });
      answer.once('error', () => outgoing.destroy());
      answer.once('end', () => {
        heard.push({
          method,
          path,
          headers,
          asked: Buffer.concat(asked).toString('utf8'),
          status: answer.statusCode ?? 0,
          answerHeaders: answer.headers,
          answered: Buffer.concat(answered).toString('utf8'),
        });
        outgoing.end();
      });
    });
    forwarded.once('error', () => outgoing.destroy());
    outgoing.once('close', () => forwarded.destroy());
    incoming.on('data', (chunk: Buffer) => {
      asked.push(chunk);
      forwarded.write(chunk);
    });
    incoming.once('end', () => {
      if (asked.length > 0) posted.push({ path, asked: Buffer.concat(asked).toString('utf8') });
      forwarded.end();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    posted,
    last: (path) => {
      const exchange = heard.findLast((one) => one.path === path);
      if (exchange === undefined) throw new Error(`the engine was never asked ${path}`);
      return exchange;
    },
    all: (path) => heard.filter((one) => one.path === path),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
