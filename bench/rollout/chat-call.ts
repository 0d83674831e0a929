// A POST of a client, and what comes back.
import { type Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/** What a client has read of one response; the time is that of `performance.now()`. */
export interface Answer {
  readonly text: string;
  readonly firstTokenMs: number;
}

/** The last number of this name in a text of JSON; NaN: there is none. */
export function lastCount(text: string, name: string): number {
  const at = text.lastIndexOf(`"${name}":`);
  return at < 0 ? Number.NaN : Number.parseInt(text.slice(at + name.length + 3, at + name.length + 15), 10);
}

export interface Call {
  readonly agent: Agent;
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly body: string;
}

function postOnce({ agent, url, headers, body }: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(url, {
      agent,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': String(body.length), ...headers },
    });
    sent.on('error', reject);
    sent.on('response', (response) => {
      let firstTokenMs = 0;
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => {
        firstTokenMs ||= performance.now();
        parts.push(part);
      });
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (response.statusCode === 200) resolve({ text, firstTokenMs });
        else {
          const message = `${url} answered ${response.statusCode}: ${text.slice(0, 300)}`;
          reject(response.statusCode! < 500 ? new Refusal(message) : new Error(message));
        }
      });
    });
    sent.end(body);
  });
}

/** A response whose status says that another attempt is in vain. */
class Refusal extends Error {}

const attempts = 5;

/**
 * As the OpenAI client, another attempt after a status of 500 or more and after an error of the connection, with a pause:
 * without one each attempt could take a connection that the server has just closed.
 */
export async function post(call: Call, mayRetry: () => boolean): Promise<Answer> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await postOnce(call);
    } catch (error) {
      if (error instanceof Refusal || !mayRetry()) throw error;
      if (attempt === attempts) throw new Error(`${call.url}: ${(error as Error).message}`, { cause: error });
      await sleep(500 * attempt);
    }
  }
}
