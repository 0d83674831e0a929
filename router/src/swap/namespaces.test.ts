import { deepEqual, equal, notEqual, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStore } from '../choose/state.ts';
import { Ledger, type Reset } from './ledger.ts';
import { Namespaces, cacheNamespace } from './namespaces.ts';

/** An engine that loads what is signalled. */
function scene() {
  const ledger = new Ledger(memoryStore().open('swaps'), 'all');
  const engine = new Namespaces();
  const add = (identity: string, reset: Reset) => {
    const order = { identity, path: identity, transition: 'async', reset, mover: 'router' } as const;
    return ledger.add(order, 0);
  };
  const swap = (identity: string, reset: Reset): void => {
    const entry = add(identity, reset);
    entry.hasLoaded = true;
    engine.apply(entry);
  };
  return { ledger, engine, add, swap };
}

test('all: later requests of any session are in the namespace of the snapshot', () => {
  const { engine, swap } = scene();
  equal(engine.of('old'), '');
  swap('v2', 'all');
  deepEqual([engine.of('old'), engine.of('new'), engine.of('')], ['v2#1', 'v2#1', 'v2#1']);
});

test('new_session: a session that goes on keeps its namespace; one without a key is always new', () => {
  const { engine, swap } = scene();
  deepEqual([engine.of('old'), engine.of('')], ['', '']);
  swap('v2', 'new_session');
  deepEqual([engine.of('old'), engine.of('new'), engine.of('')], ['', 'v2#1', 'v2#1']);
  swap('v3', 'new_session');
  deepEqual([engine.of('old'), engine.of('new'), engine.of('newer')], ['', 'v2#1', 'v3#2']);
  swap('v4', 'all');
  deepEqual([engine.of('old'), engine.of('new'), engine.of('newest')], ['v4#3', 'v4#3', 'v4#3']);
});

test('none: every session stays in the namespace of before', () => {
  const { engine, swap } = scene();
  swap('v2', 'all');
  equal(engine.of('old'), 'v2#1');
  swap('v3', 'none');
  deepEqual([engine.of('old'), engine.of('new'), engine.of('')], ['v2#1', 'v2#1', 'v2#1']);
});

test('a return to an earlier identity does not meet its cache', () => {
  const { engine, swap } = scene();
  swap('a', 'all');
  const before = engine.of('');
  swap('b', 'all');
  swap('a', 'all');
  notEqual(engine.of(''), before);
});

test('an engine that missed a swap catches up with its reset', () => {
  const { engine, add, swap } = scene();
  equal(engine.of('old'), '');
  // Other engines have loaded it, this one failed.
  add('v2', 'all').hasLoaded = true;
  swap('v3', 'none');
  deepEqual([engine.of('old'), engine.of('')], ['v2#1', 'v2#1']);
});

test('the reset of a swap that no engine has loaded has not happened', () => {
  const { engine, add, swap } = scene();
  equal(engine.of('old'), '');
  add('v2', 'all');
  swap('v3', 'none');
  equal(engine.of('old'), '');
});

test('after the ledger was cleared a reset of none leaves the namespace, also in the next router', () => {
  const state = memoryStore().open('swaps');
  const order = { identity: 'a', path: '/a', transition: 'async', reset: 'all', mover: 'router' } as const;
  const ledger = new Ledger(state, 'all');
  Object.assign(ledger.add(order, 1), { hasLoaded: true, endedAt: 1 });
  ledger.clear();
  const none = { ...order, identity: 'b', reset: 'none' } as const;
  const { namespace, resetAllSeq } = new Ledger(state, 'all').add(none, 2);
  deepEqual([namespace, resetAllSeq], ['a#1', 1]);
  ledger.clear();
  equal(ledger.add(none, 2).namespace, 'a#1', 'cleared twice');
});

test('the ledger survives, also with a line that is cut; its numbers are not used again', () => {
  const state = memoryStore().open('swaps');
  const order = { identity: 'a', path: '/a', transition: 'sync', reset: 'all', mover: 'router' } as const;
  const ledger = new Ledger(state, 'all');
  const first = ledger.add(order, 5);
  Object.assign(first, { hasLoaded: true, endedAt: 6 });
  ledger.save(first);
  ledger.note(first, 'http://a:1', { stage: 'done', error: null, phases: { load: 3 } });
  const second = ledger.add({ ...order, identity: 'b' }, 6);
  second.endedAt = 7;
  ledger.save(second);
  state.set('all|9', '{"seq":9,"iden');
  state.set('other|10', state.get('all|1')!);

  const again = new Ledger(state, 'all');
  const { current, last } = again;
  // It began when its date says, by the clock of this process.
  ok(current!.beganMs < first.beganMs - 3_600_000);
  deepEqual([{ ...current, beganMs: 0 }, last?.identity], [{ ...first, beganMs: 0 }, 'b']);
  again.clear();
  equal(again.current, null);
  equal(new Ledger(state, 'all').add(order, 7).seq, 3);
});

test('what is kept of sessions is bounded: those that were not used for longest count as new', () => {
  const { engine, swap } = scene();
  engine.of('first');
  for (let i = 0; i < 65_536; i++) {
    engine.of(`s${i}`);
    engine.of('kept');
  }
  swap('v2', 'new_session');
  deepEqual([engine.of('first'), engine.of('kept'), engine.of('s65535')], ['v2#1', '', '']);
});

test('a new session of a tenant has the new namespace, also if another tenant has an older one of its name', () => {
  const { engine: namespaces, swap } = scene();
  const thread = { run: (_call: string, _body: Buffer, _kind: null, namespace: string) => namespace };
  const { requestBody } = cacheNamespace({ find: () => ({ kind: null, namespaces }) } as never, thread as never);
  const namespaceOf = (tenant: string): unknown =>
    requestBody!({ tenant, head: { get: () => 's' } } as never, Buffer.alloc(0), {} as never);
  equal(namespaceOf('one'), '');
  swap('v2', 'new_session');
  deepEqual([namespaceOf('one'), namespaceOf('two')], ['', 'v2#1']);
});

test('requests that no model reads keep their bodies: what vLLM renders of one would have the salt in it', () => {
  const { appliesTo } = cacheNamespace({} as never, {} as never);
  const applies = (path: string): unknown =>
    appliesTo!({ isGeneration: true, path, head: { method: 'POST' } } as never);
  for (const path of ['/tokenize', '/v1/chat/completions/render', '/v1/completions/derender'])
    equal(applies(path), false);
  for (const path of ['/v1/chat/completions', '/v1/embeddings', '/skyrl/v1/generate']) equal(applies(path), true);
});

test('of a pair the namespaces of both engines count: each keeps the prompt under the one key of the request', () => {
  const [prefill, decode] = [scene(), scene()];
  const [workers, thread] = [
    { prefill: {}, decode: {} },
    { run: (_call: string, _body: Buffer, _kind: null, namespace: string) => namespace },
  ];
  const find = (worker: object) => ({ namespaces: (worker === workers.prefill ? prefill : decode).engine });
  const { requestBody } = cacheNamespace({ find } as never, thread as never);
  const legs = [{ worker: workers.prefill }, { worker: workers.decode }];
  const namespaceOf = (): unknown =>
    requestBody!({ placement: { legs }, head: { get: () => '' } } as never, Buffer.alloc(0), workers.decode as never);
  decode.swap('v1', 'all');
  const before = namespaceOf();
  prefill.swap('v1', 'all');
  const after = namespaceOf();
  prefill.swap('v2', 'all');
  equal(after, 'v1#1');
  equal(new Set([before, after, namespaceOf()]).size, 3);
});
