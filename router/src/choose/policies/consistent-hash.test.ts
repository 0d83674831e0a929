import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOf, policyContext } from '../../../test/harness/policy.ts';
import type { Config } from '../../config/options.ts';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Policy } from '../policy.ts';
import { consistentHash } from './consistent-hash.ts';

const urls = ['http://a:1', 'http://b:1', 'http://c:1', 'http://d:1'];
const sessions = Array.from({ length: 200 }, (_, i) => `session-${i}`);

interface Router {
  readonly fleet: Fleet;
  readonly policy: Policy;
}

function routerOf(members: readonly string[], options: Partial<Config> = {}): Router {
  const { fleet } = fleetOf(...members);
  return { fleet, policy: consistentHash(policyContext(fleet, options)) };
}

function choose(fleet: Fleet, policy: Policy, x: Exchange): Worker {
  const workers = fleet.eligible.filter((worker) => !x.tried.includes(worker));
  return (policy.choose(x, workers) as Placement).legs[0]!.worker;
}

/** Where every session goes. */
const homes = ({ fleet, policy }: Router): string[] =>
  sessions.map((session) => choose(fleet, policy, exchangeOf({ session })).url);

test('a session has one worker, the same in every router that knows the same workers', () => {
  const one = routerOf(urls);
  assert.deepEqual(homes(one), homes(one));
  assert.deepEqual(homes(routerOf(urls.toReversed())), homes(one));
  assert.equal(new Set(homes(one)).size, urls.length);
});

test('while a worker is away its sessions are elsewhere, and come home with it', () => {
  const router = routerOf(urls);
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
  const router = routerOf(urls);
  const before = homes(router);
  const newcomer = router.fleet.add('http://e:1') as Worker;
  const after = homes(router);
  for (const [i, url] of after.entries()) if (url !== newcomer.url) assert.equal(url, before[i]);
  assert.ok(after.includes(newcomer.url));
  router.fleet.remove(newcomer);
  assert.deepEqual(homes(router), before);
});

test('a session whose worker failed goes on to another', () => {
  const { fleet, policy } = routerOf(urls);
  const x = exchangeOf({ session: 'session-7' });
  const seen: Worker[] = [];
  for (let left = urls.length; left > 0; left--) {
    const worker = choose(fleet, policy, x);
    assert.ok(!seen.includes(worker));
    seen.push(worker);
    x.tried = [...seen];
  }
});

test('without a session the least loaded worker is taken', () => {
  const { fleet, policy } = routerOf(urls);
  for (const worker of fleet.workers.slice(0, 3)) fleet.begin(worker);
  assert.equal(choose(fleet, policy, exchangeOf()), fleet.workers[3]);
});

test('every kind of key steers it', () => {
  const router = routerOf(urls);
  const workers = new Set(
    Array.from({ length: 100 }, (_, i) => choose(router.fleet, router.policy, exchangeOf({ tenant: `tenant-${i}` }))),
  );
  assert.equal(workers.size, urls.length);
  const one = choose(router.fleet, router.policy, exchangeOf({ tenant: 'tenant-1' }));
  assert.equal(choose(router.fleet, router.policy, exchangeOf({ tenant: 'tenant-1' })), one);
});

test('with a load factor no worker takes more than so many times its share, and keys come home after', () => {
  const { fleet, policy } = routerOf(urls, { hashLoadFactor: 1.25 });
  const x = exchangeOf({ session: 'the only one' });
  const home = choose(fleet, policy, x);
  const begun: Worker[] = [];
  for (let i = 0; i < 100; i++) {
    const worker = choose(fleet, policy, x);
    fleet.begin(worker);
    begun.push(worker);
    const most = Math.ceil((1.25 * begun.length) / urls.length);
    for (const each of fleet.workers) assert.ok(fleet.load(each) <= most);
  }
  for (const worker of begun) fleet.finish(worker);
  assert.equal(choose(fleet, policy, x), home);
});

test('it tells how it chose in the words that users of vllm-router look for', () => {
  const { fleet } = fleetOf(...urls);
  const lines: string[] = [];
  const policy = consistentHash(policyContext(fleet, {}, { trace: (line) => lines.push(line) }));
  const { url } = choose(fleet, policy, exchangeOf({ session: 'abc' }));
  assert.ok(lines.includes("Found session key in header 'x-session-id': abc"));
  assert.ok(lines.includes(`Hash key 'header:x-session-id:abc' mapped to worker: ${url}`), lines.join('\n'));
});
