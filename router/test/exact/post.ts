import { Agent, request } from 'node:http';

/** What a client does at an event of a stream. */
export type Move = 'go on' | 'go on without waiting' | 'leave';

/** What a client got of an answer. */
export interface Reply {
  /** 0: none began. */
  readonly status: number;
  readonly isStream: boolean;
  /** What the client waits for came: all of it, or the event at which it went on. */
  readonly isWhole: boolean;
  /** Of a stream, the data of the events that came whole; else the body. */
  readonly parts: readonly string[];
  /** Settles when the connection is done with, whatever the client waited for. */
  readonly over: Promise<void>;
}

/** One for all clients: connections are reused. */
export const newAgent = (): Agent => new Agent({ keepAlive: true });

/** Sends a request. @param onEvent asked at each event of a stream, the last one ("[DONE]") too */
export function post(
  agent: Agent,
  url: string,
  body: object,
  headers: Readonly<Record<string, string>>,
  onEvent: (data: string) => Move,
): Promise<Reply> {
  return new Promise((resolve) => {
    const parts: string[] = [];
    const { promise: over, resolve: settle } = Promise.withResolvers<void>();
    let status = 0;
    let isStream = false;
    const end = (isWhole: boolean): void => resolve({ status, isStream, isWhole, parts: [...parts], over });
    const lost = (): void => {
      end(false);
      settle();
    };
    const sent = request(url, { method: 'POST', agent, headers }, (response) => {
      status = response.statusCode!;
      isStream = response.headers['content-type']?.startsWith('text/event-stream') === true;
      let rest = '';
      response.setEncoding('utf8');
      response.on('data', (text: string) => {
        rest += text;
        if (!isStream) return;
        const events = rest.split('\n\n');
        rest = events.pop()!;
        for (const event of events) {
          const data = event.replace(/^data: /, '');
          parts.push(data);
          const move = onEvent(data);
          if (move === 'go on') continue;
          end(move === 'go on without waiting');
          if (move === 'leave') {
            sent.destroy();
            return;
          }
        }
      });
      response.on('end', () => {
        if (!isStream) parts.push(rest);
        end(response.complete);
        settle();
      });
      response.on('error', lost);
      response.on('close', lost);
    });
    sent.on('error', lost);
    sent.on('close', lost);
    sent.end(JSON.stringify(body));
  });
}
