import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { Caller } from './caller.ts';

/** Answers anything, and notes what it was asked for. */
async function listening(t: TestContext) {
  const asked: string[] = [];
  const sessions: (string | null)[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url!);
    const session = request.headers['x-session-id'] as string | undefined;
    sessions.push(session === undefined ? null : Buffer.from(session, 'latin1').toString());
    response.end('{}');
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, asked, sessions };
}

test('a path of a recording names no other host: the key is for the one that was named', async (t) => {
  const [named, other] = [await listening(t), await listening(t)];
  const caller = new Caller(new URL(`http://${named.host}/base/`), 'secret');
  const call = { id: '', session: 's', parents: [], startedAtMs: 0, body: Buffer.alloc(0), samples: [] };
  const bare = new Caller(new URL(`http://${named.host}`), 'secret');
  for (const path of ['/generate', `//${other.host}/generate`, `/\\${other.host}/generate`]) {
    await caller.post({ ...call, path }, Buffer.from('{}'));
    await bare.post({ ...call, path }, Buffer.from('{}'));
  }
  caller.close();
  bare.close();
  assert.deepEqual(other.asked, []);
  assert.deepEqual(named.asked.slice(0, 2), ['/base/generate', '/generate']);
  assert.equal(named.asked.length, 6);
});

test('the calls of a session have its name, if a header can have it', async (t) => {
  const { host, sessions } = await listening(t);
  const caller = new Caller(new URL(`http://${host}`), undefined);
  const call = { id: '', path: '/generate', parents: [], startedAtMs: 0, body: Buffer.alloc(0), samples: [] };
  const names = ['s', 'task 1/7', 'ü', '日本', '\u{1f600}'];
  for (const session of [...names, '', ' ', 'a\nb', 'a\0', ' a', 'a '])
    await caller.post({ ...call, session }, Buffer.from('{}'));
  caller.close();
  assert.deepEqual(sessions, [...names, null, null, null, null, null, null]);
});
