import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { Ledger } from './ledger.ts';

const empty = (): Ledger => new Ledger(new Map<string, string>(), 'all');

function load(ledger: Ledger, ...identities: string[]): void {
  for (const identity of identities) {
    const how = { path: null, transition: 'async', reset: 'all', mover: 'router' } as const;
    Object.assign(ledger.add({ ...how, identity, whole: identity }, 0), { hasLoaded: true, endedAt: 1 });
  }
}

test('a snapshot that is signalled again, for an engine that could not load it, is one snapshot', () => {
  const ledger = empty();
  load(ledger, 'v1', 'v2', 'v2', 'v3', 'v3');
  const lags = ['base', 'v1', 'v2', 'v3'].map((from) => ledger.loadedBetween(from, 'v3', 'base'));
  deepEqual(lags, [3, 2, 1, 0]);
  load(ledger, 'v1');
  deepEqual(ledger.loadedBetween('v2', 'v1', 'base'), 2, 'a return counts');
});

test('a session that began before the ledger was cleared lags behind what was loaded since', () => {
  const ledger = empty();
  load(ledger, 'v1');
  ledger.clear();
  load(ledger, 'v2', 'v3');
  deepEqual(ledger.loadedBetween('v1', 'v3', 'base'), 2);
});

test('a swap that runs while the ledger is cleared stays in it, also for the next router', () => {
  const state = new Map<string, string>();
  const ledger = new Ledger(state, 'all');
  load(ledger, 'v1');
  const first = Object.assign(ledger.last!, { path: '/elsewhere/v1' });
  ledger.save(first);
  const how = { path: null, transition: 'async', reset: 'all', mover: 'router' } as const;
  const running = ledger.add({ ...how, identity: 'v2', whole: 'v2' }, 0);
  ledger.note(running, 'http://engine:1', { stage: 'load', error: null, phases: {} });
  ledger.clear();
  ledger.save(first);
  const seen = ({ last, current, start }: Ledger) => [last?.identity, current?.identity, start.identity, start.path];
  deepEqual(seen(ledger), ['v2', undefined, 'v1', '/elsewhere/v1']);
  Object.assign(running, { hasLoaded: true, endedAt: 2 });
  ledger.save(running);
  const next = new Ledger(state, 'all');
  for (const each of [ledger, next]) deepEqual(seen(each), ['v2', 'v2', 'v1', '/elsewhere/v1']);
  deepEqual([...next.last!.engines.keys()], ['http://engine:1']);
  next.clear();
  load(next, 'v3');
  deepEqual([next.last!.seq, next.latest(9).length, next.start.identity], [3, 1, 'v2']);
});

test('where the weights of the fleet were found stays known when the ledger is cleared, those under an adapter too', () => {
  const state = new Map<string, string>();
  const ledger = new Ledger(state, 'all');
  const how = { transition: 'async', reset: 'all', mover: 'router' } as const;
  for (const identity of ['whole', 'lora']) {
    const added = ledger.add({ ...how, identity, path: `/elsewhere/${identity}`, whole: 'whole' }, 0);
    Object.assign(added, { hasLoaded: true, endedAt: 1 });
  }
  for (const each of [ledger, ledger, new Ledger(state, 'all')]) {
    each.clear();
    deepEqual(
      ['whole', 'lora', 'other'].map((identity) => each.pathOf(identity)),
      ['/elsewhere/whole', '/elsewhere/lora', null],
    );
  }
});

test('what is known of engines that have left is bounded, and that of engines in the fleet stays', () => {
  const state = new Map<string, string>();
  const done = { stage: 'done', error: null, phases: {} };
  const pass = (ledger: Ledger, from: number): void => {
    for (let i = from; i < from + 3_000; i++) {
      const url = `http://engine-${i}:1`;
      ledger.joined(url);
      ledger.noteBootPath(url, '/weights');
      ledger.noteKeptName(url, 'v1');
      ledger.note(ledger.last!, url, done);
      ledger.left(url);
      // The engine was asked while it left.
      ledger.noteBootPath(url, '/weights');
    }
  };
  const ledger = new Ledger(state, 'all');
  load(ledger, 'v1');
  ledger.joined('http://stays:1');
  ledger.noteBootPath('http://stays:1', '/weights');
  ledger.note(ledger.last!, 'http://stays:1', done);
  pass(ledger, 0);
  pass(ledger, 3_000);
  deepEqual(state.size, 1 + 2 + 3 * 4_096);
  deepEqual(ledger.bootPathOf('http://stays:1'), '/weights');
  ledger.save(ledger.last!);
  const next = new Ledger(state, 'all');
  next.joined('http://stays:1');
  next.joined('http://engine-5999:1');
  pass(next, 6_000);
  deepEqual(state.size, 1 + 2 + 3 * 4_097);
  const names = ['stays', 'engine-5999', 'engine-8999', 'engine-1'];
  const urls = names.map((name) => `http://${name}:1`);
  deepEqual(
    urls.map((url) => next.bootPathOf(url)),
    ['/weights', '/weights', '/weights', null],
  );
  deepEqual(
    urls.map((url) => next.last!.engines.has(url)),
    [true, true, true, false],
  );
});

test('a snapshot that no engine could load stays failed, however many engines come and go', () => {
  const ledger = empty();
  load(ledger, 'v1');
  const how = { path: null, transition: 'async', reset: 'all', mover: 'router' } as const;
  const failed = ledger.add({ ...how, identity: 'v2', whole: 'v2' }, 0);
  ledger.note(failed, 'http://first:1', { stage: 'error', error: 'no such file', phases: {} });
  for (let i = 0; i < 5_000; i++) ledger.left(`http://engine-${i}:1`);
  deepEqual(ledger.wanted?.identity, 'v1');
});
