import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import { pino } from 'pino';
import { standStill } from '../../../test/harness/stand-still.ts';
import { StoredFirst } from './stored-first.ts';

test('an end is sent when its turn is stored, or after 250 ms: counted, and logged once a minute', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const lines: string[] = [];
  const first = new StoredFirst(pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) }));
  const sent: string[] = [];
  const stored = Promise.withResolvers<boolean>();
  first.whenStored(stored.promise, () => void sent.push('stored'));
  first.whenStored(new Promise(() => {}), () => void sent.push('late'));
  await Promise.resolve();
  assert.equal(sent.join(), '');
  stored.resolve(true);
  await stored.promise;
  assert.equal(sent.join(), 'stored');
  t.mock.timers.tick(249);
  assert.equal(`${sent.join()} ${first.sentEarly}`, 'stored 0');
  t.mock.timers.tick(1);
  await turn();
  assert.equal(`${sent.join()} ${first.sentEarly}`, 'stored,late 1');
  // One that the store does not take waits for nothing.
  const refused = Promise.resolve(false);
  first.whenStored(refused, () => void sent.push('refused'));
  await refused;
  const failed = Promise.reject(new Error('the thread has ended'));
  first.whenStored(failed, () => void sent.push('failed'));
  await failed.catch(() => {});
  await Promise.resolve();
  assert.equal(`${sent.join()} ${first.sentEarly}`, 'stored,late,refused,failed 3');
  assert.equal(lines.length, 1);
  assert.match(lines[0]!, /"answers":1.*before their turns were stored/);
});

test('a turn that was stored while the process was stopped was stored in time', async (t) => {
  const first = new StoredFirst(pino({ level: 'silent' }));
  const { port1, port2 } = new MessageChannel();
  t.after(() => port1.close());
  const stored = new Promise<boolean>((resolve) => {
    port1.once('message', resolve);
  });
  await turn();
  const sent = new Promise<void>((resolve) => first.whenStored(stored, resolve));
  port2.postMessage(true);
  standStill(300);
  await sent;
  assert.equal(first.sentEarly, 0);
});
