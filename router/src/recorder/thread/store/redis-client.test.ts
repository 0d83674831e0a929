import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startRespServer } from '../../../../test/harness/resp-server.ts';
import { until } from '../../../../test/harness/within.ts';
import { RENEW_MS, connectRedis } from './redis-client.ts';
import { StoreAway } from './store.ts';

/** A Redis behind a relay. @param isSilent whether a new connection gets no answer, by its number from 1 on */
async function relayedServer(t: TestContext, isSilent: (n: number) => boolean) {
  /** Where new connections lead to. */
  const primary = { now: await startRespServer(t) };
  const links: Socket[][] = [];
  const relay = createServer((client) => {
    const server = connect(Number(new URL(primary.now.url).port), '127.0.0.1');
    links.push([client, server]);
    if (!isSilent(links.length)) client.pipe(server).pipe(client);
    for (const socket of [client, server]) socket.on('error', () => {});
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  t.after(() => {
    relay.close();
    for (const socket of links.flat()) socket.destroy();
  });
  const { port } = relay.address() as AddressInfo;
  return { url: `redis://127.0.0.1:${port}`, links, primary };
}

/** On a machine under load a server that answers may be taken for one that does not, and what was asked fails. */
const isDone = (asked: Promise<unknown>): Promise<boolean> =>
  asked.then(
    () => true,
    () => false,
  );

test('a connection that has become silent is replaced, also while it begins', async (t) => {
  const { url, links } = await relayedServer(t, (n) => n === 2 || n === 3);
  const link = await connectRedis(url, false, undefined, 1_000);
  t.after(() => link.close());
  await until('it is written', () => isDone(link.send(['HSET', 'key', 'field', 'value'])));
  for (const socket of links.flat()) socket.unpipe().pause();
  const lost = [link.send(['HGET', 'key', 'field']), link.transaction([['HSET', 'key', 'field', 'later']])];
  for (const each of lost) await assert.rejects(each);
  await until('it answers', () =>
    link.send(['HGET', 'key', 'field']).then(
      (value) => String(value) === 'value',
      () => false,
    ),
  );
  // On a machine under load a connection that is not silent may be taken for one, and is replaced too.
  assert.ok(links.length >= 4, String(links.length));
});

test('what was sent on a connection that was given up has no effect when it arrives later', async (t) => {
  const { url, links, primary } = await relayedServer(t, () => false);
  const link = await connectRedis(url, false, undefined, 500);
  t.after(() => link.close());
  const write = (value: string) => link.transaction([['HSET', 'key', 'field', value]]);
  await until('it is written', () => isDone(write('first')));
  const [client, server] = links.at(-1)! as [Socket, Socket];
  client.unpipe().pause();
  server.pause();
  await assert.rejects(write('early'), StoreAway);
  const sent: string[] = [];
  primary.now.refuses = (words) => {
    sent.push(words.join(' '));
    return null;
  };
  // The first try comes just when the client begins to connect: it keeps transactions until then, and sends them first.
  await delay(RENEW_MS);
  await until('it is written', () => isDone(write('late')));
  const at = (begin: string): number => sent.findIndex((words) => words.startsWith(begin));
  assert.ok(at('CLIENT KILL') >= 0 && at('CLIENT KILL') < at('MULTI'), sent.join('; '));
  const closed = once(client, 'close');
  client.pipe(server);
  await closed;
  let value: unknown;
  await until('it is read', () => isDone(link.send(['HGET', 'key', 'field']).then((read) => (value = read))));
  assert.equal(String(value), 'late');
});

test('a server that a failover has made a replica is left for the one that its name leads to now', async (t) => {
  const { url, primary } = await relayedServer(t, () => false);
  const link = await connectRedis(url, false);
  t.after(() => link.close());
  const writes = [
    () => link.send(['HSET', 'key', 'field', 'value']),
    () => link.transaction([['HSET', 'key', 'field', 'value']]),
  ];
  for (const write of writes) {
    await write();
    primary.now.refuses = ([name]) =>
      name === 'HSET' ? "READONLY You can't write against a read only replica." : null;
    await assert.rejects(write(), StoreAway);
    primary.now = await startRespServer(t);
    await until('it is written', () => isDone(write()));
  }
});

test('a server that takes connections and does not answer is an error where it has to answer', async (t) => {
  const { url } = await relayedServer(t, () => true);
  await assert.rejects(connectRedis(url, true, undefined, 100), /can't be reached/);
});
