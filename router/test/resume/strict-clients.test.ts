import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Agent, type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { type Case, everyCase, kinds, startResuming } from './every-answer.ts';

interface Got {
  readonly status: number;
  readonly text: string;
}

const headers = { origin: 'https://app.example', 'x-session-id': 's' };

/** Node's own client, with one connection as long as that is kept alive. */
function nodeClient() {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const sockets = new Set<Socket>();
  let ended = 0;
  const ask = (url: string, { method, path, body }: Case): Promise<Got> =>
    new Promise((resolve, reject) => {
      const asked = request(url + path, { agent, method, headers }, (response) => {
        // Node's client ends a connection after a HEAD.
        if (response.headers.connection === 'close' || method === 'HEAD') ended++;
        sockets.add(response.socket);
        read(response).then(resolve, reject);
      });
      asked.on('error', reject);
      asked.end(body ?? undefined);
    });
  return { agent, ask, sockets, ended: () => ended };
}

async function read(response: IncomingMessage): Promise<Got> {
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  const bytes = Buffer.concat(parts);
  const isCompressed = response.headers['content-encoding'] === 'gzip' && bytes.length > 0;
  return { status: response.statusCode!, text: (isCompressed ? gunzipSync(bytes) : bytes).toString() };
}

async function fetched(url: string, { method, path, body }: Case): Promise<Got> {
  const response = await fetch(url + path, { method, headers, body });
  return { status: response.status, text: await response.text() };
}

/** Sends all requests, one after the other. @returns those that failed */
async function failures(ask: (each: Case) => Promise<Got>): Promise<string[]> {
  const failed: string[] = [];
  for (const each of everyCase()) {
    try {
      assert.deepEqual(await ask(each), { status: each.status, text: each.expected });
    } catch (error) {
      failed.push(`${each.name}: ${inspect(error)}`);
    }
  }
  return failed;
}

for (const kind of kinds) {
  test(`with --resume on, ${kind}, strict clients read every answer over connections that are kept alive`, async (t) => {
    const router = await startResuming(t, kind);
    const node = nodeClient();
    t.after(() => node.agent.destroy());
    assert.deepEqual(await failures((each) => node.ask(router.url, each)), []);
    assert.equal(node.sockets.size, node.ended() + 1, 'a connection ends only where an answer says so');
    let connections = 0;
    const connected = (): void => void connections++;
    subscribe('undici:client:connected', connected);
    assert.deepEqual(await failures((each) => fetched(router.url, each)), []);
    unsubscribe('undici:client:connected', connected);
    assert.ok(connections <= node.sockets.size + 1, `${connections} connections`);
  });
}
