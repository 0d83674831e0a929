import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { Ledger } from './ledger.ts';

const empty = (): Ledger => new Ledger(new Map<string, string>(), 'all');

function load(ledger: Ledger, ...identities: string[]): void {
  for (const identity of identities) {
    const how = { path: null, transition: 'async', reset: 'all', mover: 'router' } as const;
    ledger.add({ ...how, identity, whole: identity }, 0).hasLoaded = true;
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
