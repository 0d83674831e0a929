import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Server, type Socket, connect, createServer } from 'node:net';
import { after, before, test } from 'node:test';
import { setImmediate as nextTick } from 'node:timers/promises';
import { Chance } from './chance.ts';
import { ClientConnection, type ConnectionContext, type RequestListener } from '../../src/wire/client-connection.ts';
import { RetryBudget } from '../../src/wire/request-body.ts';
import type { ResultListener } from '../../src/wire/result.ts';
import { ownHead } from '../../src/wire/response-head.ts';

let server: Server;
before(async () => {
  server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
});
after(() => server.close());

/** Both ends of a connection. */
async function openSockets(): Promise<{ ours: Socket; theirs: Socket }> {
  const theirs = connect((server.address() as { port: number }).port, '127.0.0.1');
  const [ours] = (await once(server, 'connection')) as [Socket];
  return { ours, theirs };
}

/** How bytes are handed to a connection: as the buffers they came in, or in memory that others are read into next. */
type Handing = 'own' | 'shared';

function hand(connection: ClientConnection, part: Buffer, handing: Handing): void {
  if (handing === 'own') connection.socket.emit('data', part);
  else {
    const memory = connection.requests.readInto;
    part.copy(memory);
    connection.requests.onBytes(memory, part.length);
    memory.fill('!');
  }
}

/**
 * What a connection makes of a client's bytes that arrive in these parts: each request with its body, each refusal. The
 * parts are handed to it directly, as real sockets do not promise to keep them apart.
 */
async function readParts(parts: readonly Buffer[], handing: Handing): Promise<string[]> {
  const { ours, theirs } = await openSockets();
  const log: string[] = [];
  const answer = (connection: ClientConnection, status: number): void => {
    connection.head(ownHead(status, 'x', '', 0));
    connection.end();
  };
  const owner: ConnectionContext & RequestListener = {
    clock: { nowMs: 0 },
    retryBudget: new RetryBudget(1_000),
    isDraining: false,
    options: {
      timeouts: { headMs: 1_000, bodyIdleMs: 1_000, keepAliveMs: 1_000, writeMs: 600_000 },
      maxPayloadBytes: 100,
      allowsHalfClose: false,
      isAdminPort: false,
    },
    onRequest(head, body, connection) {
      const watcher: ResultListener<ClientConnection> = {
        ended: (_, result) => (result.kind === 'refused' ? refuse(result.error.status) : undefined),
      };
      const refuse = (status: number): void => {
        log.push(`refused ${status}`);
        answer(connection, status);
      };
      connection.watcher = watcher;
      body.whenComplete(() => {
        log.push(`${head.method} ${head.target} ${JSON.stringify(body.join().toString())}`);
        answer(connection, 200);
      });
    },
    onRefused({ status }, _target, connection) {
      log.push(`refused ${status}`);
      answer(connection, status);
    },
  };
  const connection = new ClientConnection(ours, ours, owner, owner);
  for (const part of parts) {
    if (part.length > 0) hand(connection, part, handing);
    // The next request of a connection is begun in a turn of its own.
    for (let turns = 0; turns < 3; turns++) await nextTick();
  }
  for (let turns = 0; turns < 20; turns++) await nextTick();
  theirs.destroy();
  ours.destroy();
  return log;
}

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nhost: h\r\n\r\n`;
const post = (fields: string, body: string): string => `POST /p HTTP/1.1\r\nhost: h\r\n${fields}\r\n\r\n${body}`;
const chunked = 'transfer-encoding: chunked';
const streams = {
  'two requests': get('/a') + get('/b'),
  'a body and a request': post('content-length: 5', 'hello') + get('/b'),
  'chunks and a request': post(chunked, '3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: u\r\n\r\n') + get('/b'),
  'an empty body and a request': post('content-length: 0', '') + get('/b'),
  'an empty line before a request': `\r\n${get('/a')}\r\n${get('/b')}`,
  'two empty lines before a request': `\r\n\r\n${get('/a')}`,
  'two empty lines between requests': `${get('/a')}\r\n\r\n${get('/b')}`,
  'a bad request after a good one': `${get('/a')}GET b HTTP/1.1\r\n\r\n${get('/c')}`,
  'a bad chunk': post(chunked, '3\r\nabcd\r\n0\r\n\r\n') + get('/b'),
  'a body that is announced too large': post('content-length: 101', 'x'.repeat(101)) + get('/b'),
  'chunks that become too large': post(chunked, `65\r\n${'x'.repeat(101)}\r\n0\r\n\r\n`) + get('/b'),
  'a last request': `GET /a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n${get('/b')}`,
};

for (const [name, text] of Object.entries(streams)) {
  test(`${name}: any split gives the same requests and refusals`, async (t) => {
    const chance = new Chance();
    t.diagnostic(`FUZZ_SEED=${chance.seed}`);
    const bytes = Buffer.from(text);
    const whole = await readParts([bytes], 'own');
    assert.notEqual(whole.length, 0);
    for (let runs = 0; runs < 25; runs++) {
      const cuts = [0, ...chance.cuts(bytes), bytes.length];
      const parts = cuts.slice(1).map((cut, i) => Buffer.from(bytes.subarray(cuts[i], cut)));
      for (const handing of ['own', 'shared'] as const) {
        assert.deepEqual(await readParts(parts, handing), whole, `${handing} ${JSON.stringify(parts.map(String))}`);
      }
    }
  });
}
