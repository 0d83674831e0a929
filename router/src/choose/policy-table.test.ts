import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../test/harness/policy.ts';
import type { Needs } from '../placed-request.ts';
import type { Policy } from './policy.ts';
import { type NamedPolicy, PolicyTable } from './policy-table.ts';

function named(name: string, needs: Needs = 'nothing', rest: Partial<Policy> = {}): NamedPolicy {
  return { name, policy: { needs, choose: () => assert.fail('asked'), ...rest } };
}

const names = (table: PolicyTable): [string, string][] =>
  Array.from(table.entries(), ([model, { name }]) => [model, name]);

test('models with a policy of their own get it, all others the usual one', () => {
  const usual = named('usual');
  const own = named('own');
  const table = new PolicyTable(usual);
  assert.equal(table.needsModel, false);
  table.set('m', own);
  assert.equal(table.needsModel, true);
  assert.equal(table.for(exchangeOf({ model: 'm' })), own.policy);
  assert.equal(table.for(exchangeOf({ model: 'other' })), usual.policy);
  assert.equal(table.for(exchangeOf()), usual.policy);
  assert.deepEqual(names(table), [
    ['', 'usual'],
    ['m', 'own'],
  ]);
});

test('as much is read of requests as the most demanding policy needs', () => {
  const table = new PolicyTable(named('a', 'headers'));
  assert.equal(table.needs, 'headers');
  table.set('m', named('b', 'prompt'));
  table.set('n', named('c', 'key'));
  assert.equal(table.needs, 'prompt');
  table.unset('m');
  assert.equal(table.needs, 'key');
  table.unset('n');
  assert.equal(table.needs, 'headers');
  table.set('', named('d', 'nothing'));
  assert.equal(table.needs, 'nothing');
});

test('who is replaced is closed, once', () => {
  const closed: string[] = [];
  const closing = (name: string) => named(name, 'nothing', { close: () => void closed.push(name) });
  const table = new PolicyTable(closing('usual'));
  table.set('m', closing('first'));
  table.set('m', closing('second'));
  table.set('', closing('newer'));
  assert.equal(table.unset('m'), true);
  assert.equal(table.unset('m'), false);
  assert.equal(table.needsModel, false);
  assert.deepEqual(closed, ['first', 'usual', 'second']);
});

test('the end of a session reaches every policy', () => {
  const heard: string[] = [];
  const hearing = (name: string, knows: boolean) =>
    named(name, 'nothing', { sessionEnded: (session) => heard.push(`${name} ${session}`) > 0 && knows });
  const table = new PolicyTable(hearing('a', true));
  table.set('m', hearing('b', false));
  table.set('n', named('c'));
  assert.equal(table.sessionEnded('s'), true);
  assert.deepEqual(heard, ['a s', 'b s']);
  table.set('', hearing('d', false));
  assert.equal(table.sessionEnded('s'), false);
});

test('indexes of policies with one name count together, and policies without one not at all', () => {
  const sized = (name: string, blocks: number) =>
    named(name, 'prompt', { indexSize: () => ({ blocks, bytes: 48 * blocks }) });
  const table = new PolicyTable(sized('indexed', 2));
  table.set('a', sized('indexed', 3));
  table.set('b', sized('other', 4));
  table.set('c', named('without'));
  assert.deepEqual(
    [...table.indexSizes()],
    [
      ['indexed', { blocks: 5, bytes: 240 }],
      ['other', { blocks: 4, bytes: 192 }],
    ],
  );
});
