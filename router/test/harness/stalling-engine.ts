import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

/** A non-null `finish_reason`, of SGLang's /generate and of OpenAI's API. */
const FINISH = /"finish_reason":\s*["{]/;

/** Stands before an engine: of each event stream, what follows a certain event waits for `goOn`. */
export interface StallingEngine {
  readonly url: string;
  /** Streams that wait. */
  readonly stalled: number;
  /** Sends what waits, up to the next such event. */
  goOn(): void;
}

/** @param stallsAfter such events; by default those that end a choice */
export async function startStallingEngine(
  t: TestContext,
  engineUrl: string,
  stallsAfter = FINISH,
): Promise<StallingEngine> {
  const waiting: (() => void)[] = [];
  const relay = async (from: IncomingMessage, to: ServerResponse): Promise<void> => {
    to.writeHead(from.statusCode!, from.headers);
    let text = '';
    for await (const bytes of from) {
      text += (bytes as Buffer).toString('latin1');
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const event = text.slice(0, end + 2);
        text = text.slice(end + 2);
        to.write(event, 'latin1');
        if (stallsAfter.test(event)) await new Promise<void>((resolve) => waiting.push(resolve));
      }
    }
    to.end(text, 'latin1');
  };
  const server = createServer((asked, answer) => {
    const target = new URL(asked.url!, engineUrl);
    const inner = request(target, { method: asked.method, headers: asked.headers }, (from) => {
      if (from.headers['content-type']?.startsWith('text/event-stream') === true) void relay(from, answer);
      else {
        answer.writeHead(from.statusCode!, from.headers);
        from.pipe(answer);
      }
    });
    // Whichever side goes takes the other one with it.
    inner.on('error', () => answer.destroy());
    answer.on('close', () => inner.destroy());
    asked.pipe(inner);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get stalled() {
      return waiting.length;
    },
    goOn() {
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}

/** An event stream as its client reads it. */
export class EventReader {
  text = '';
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #abort: AbortController;

  private constructor(response: Response, abort: AbortController) {
    this.#reader = response.body!.getReader();
    this.#abort = abort;
  }

  static async open(url: string, body: object, headers: Record<string, string> = {}): Promise<EventReader> {
    const abort = new AbortController();
    const init = { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true }), signal: abort.signal };
    const response = await fetch(url, init);
    if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
    return new EventReader(response, abort);
  }

  /** Reads up to and with the event that ends a choice, the `count`th of them. */
  async untilFinish(count = 1): Promise<void> {
    while (this.text.split('\n\n').filter((event) => FINISH.test(event)).length < count) await this.#read();
  }

  async untilDone(): Promise<void> {
    while (!this.text.endsWith('data: [DONE]\n\n')) await this.#read();
  }

  /** Reads until there are so many events. */
  async untilEvents(count: number): Promise<void> {
    while (this.events.length < count) await this.#read();
  }

  /** The JSON of the events that came. */
  get events(): Record<string, unknown>[] {
    return this.text
      .split('\n\n')
      .slice(0, -1)
      .filter((event) => event.startsWith('data: {'))
      .map((event) => JSON.parse(event.slice(6)) as Record<string, unknown>);
  }

  /** Leaves. */
  close(): void {
    this.#abort.abort();
  }

  async #read(): Promise<void> {
    const { done, value } = await this.#reader.read();
    if (done) throw new Error(`the stream ended: ${this.text}`);
    this.text += Buffer.from(value).toString();
  }
}
