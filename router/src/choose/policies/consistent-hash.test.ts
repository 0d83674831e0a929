import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Exchange, type Road } from '../../exchange.ts';
import { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { RequestBody, RetryBudget } from '../../wire/request-body.ts';
import { RequestHead } from '../../wire/request-head.ts';
import type { Sink } from '../../wire/sink.ts';
import type { Policy } from '../policy.ts';
import { consistentHash } from './consistent-hash.ts';

function exchangeOf(session: string): Exchange {
  const line = session === '' ? '' : `x-session-id: ${session}\r\n`;
  const bytes = Buffer.from(`POST / HTTP/1.1\r\nhost: h\r\n${line}\r\n`);
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0);
  return new Exchange({} as Road, head, new RequestBody(new RetryBudget(0), () => {}), {} as Sink, 0);
}

function fleetOf(urls: readonly string[]): { fleet: Fleet; policy: Policy } {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, ca: null });
  for (const url of urls) fleet.add(url);
  return { fleet, policy: consistentHash({ fleet, random: Math.random }) };
}

const urls = ['http://a:1', 'http://b:1', 'http://c:1', 'http://d:1'];
const sessions = Array.from({ length: 200 }, (_, i) => `session-${i}`);

function choose(fleet: Fleet, policy: Policy, x: Exchange): Worker {
  const workers = fleet.eligible.filter((worker) => !x.tried.includes(worker));
  return (policy.choose(x, workers) as Placement).legs[0]!.worker;
}

/** Where every session goes. */
const homes = ({ fleet, policy }: ReturnType<typeof fleetOf>): string[] =>
  sessions.map((session) => choose(fleet, policy, exchangeOf(session)).url);

test('a session has one worker, the same in every router that knows the same workers', () => {
  const one = fleetOf(urls);
  assert.deepEqual(homes(one), homes(one));
  assert.deepEqual(homes(fleetOf(urls.toReversed())), homes(one));
  assert.equal(new Set(homes(one)).size, urls.length);
});

test('while a worker is away its sessions are elsewhere, and come home with it', () => {
  const router = fleetOf(urls);
  const before = homes(router);
  const away = router.fleet.get('http://b:1')!;
  router.fleet.setReason(away, 'unhealthy', true);
  const meanwhile = homes(router);
  for (const [i, url] of before.entries()) {
    if (url === away.url) assert.notEqual(meanwhile[i], away.url);
    else assert.equal(meanwhile[i], url);
  }
  assert.ok(new Set(meanwhile.filter((_, i) => before[i] === away.url)).size > 1, 'all went to one worker');
  router.fleet.setReason(away, 'unhealthy', false);
  assert.deepEqual(homes(router), before);
});

test('workers that come and go move no session but those they have or get', () => {
  const router = fleetOf(urls);
  const before = homes(router);
  const newcomer = router.fleet.add('http://e:1') as Worker;
  const after = homes(router);
  for (const [i, url] of after.entries()) if (url !== newcomer.url) assert.equal(url, before[i]);
  assert.ok(after.includes(newcomer.url));
  router.fleet.remove(newcomer);
  assert.deepEqual(homes(router), before);
});

test('a session whose worker failed goes on to another', () => {
  const { fleet, policy } = fleetOf(urls);
  const x = exchangeOf('session-7');
  const seen: Worker[] = [];
  for (let left = urls.length; left > 0; left--) {
    const worker = choose(fleet, policy, x);
    assert.ok(!seen.includes(worker));
    seen.push(worker);
    x.tried = [...seen];
  }
});

test('without a session the least loaded worker is taken', () => {
  const { fleet, policy } = fleetOf(urls);
  for (const worker of fleet.workers.slice(0, 3)) fleet.begin(worker);
  assert.equal(choose(fleet, policy, exchangeOf('')), fleet.workers[3]);
});
