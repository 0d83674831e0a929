import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { roleOf, selectorForAll } from './role-selectors.ts';

const keys = fc.constantFrom('app', 'tier', 'env');
const values = fc.constantFrom('', 'a', 'b', 'c');
const selectors = fc.array(
  fc.tuple(keys, values).map(([key, value]) => `${key}=${value}`),
  { maxLength: 4 },
);
const labels = fc.dictionary(keys, values);

const fits = (pod: Record<string, string>, selector: readonly string[]): boolean =>
  selector.length > 0 && selector.every((pair) => pair === `${pair.split('=')[0]}=${pod[pair.split('=')[0]!]}`);

/** As the API server reads it (Kubernetes, "Labels and Selectors"). */
function isAsked(pod: Record<string, string>, selector: string): boolean {
  return selector.split(/,(?![^(]*\))/).every((part) => {
    if (part === '') return true;
    const [, key, list] = /^(\w+) in \((.*)\)$/.exec(part) ?? [];
    if (key !== undefined) return pod[key] !== undefined && list!.split(',').includes(pod[key]);
    return fits(pod, [part]);
  });
}

test('the selector asks for pods of both roles', () => {
  fc.assert(
    fc.property(labels, selectors, selectors, (pod, prefill, decode) => {
      const role = roleOf(pod, { prefill, decode });
      equal(role !== null, fits(pod, prefill) || fits(pod, decode));
      if (role !== null) ok(isAsked(pod, selectorForAll({ prefill, decode })));
      if (role === 'both') ok(fits(pod, prefill) && fits(pod, decode));
      else if (role === 'prefill') ok(fits(pod, prefill));
      else if (role === 'decode') ok(fits(pod, decode));
    }),
  );
});

test('what is asked for is as narrow as it can be', () => {
  const prefill = ['app=prefill-server', 'tier=gpu', 'env=prod'];
  const decode = ['app=decode-server', 'tier=cpu', 'env=prod', 'more=x'];
  equal(selectorForAll({ prefill, decode }), 'app in (prefill-server,decode-server),tier in (gpu,cpu),env=prod');
  equal(selectorForAll({ prefill, decode: [] }), 'app=prefill-server,tier=gpu,env=prod');
  equal(selectorForAll({ prefill: ['role=prefill'], decode: ['kind=decode'] }), '', 'all of the namespace');
});

test('a pod that fits both is of the role that asks for more', () => {
  const [general, special] = [['app=engine'], ['app=engine', 'role=prefill']];
  const pod = { app: 'engine', role: 'prefill' };
  equal(roleOf(pod, { prefill: special, decode: general }), 'prefill');
  equal(roleOf(pod, { prefill: general, decode: special }), 'decode');
  equal(roleOf({ app: 'engine' }, { prefill: special, decode: general }), 'decode');
  equal(roleOf(pod, { prefill: ['app=engine'], decode: ['role=prefill'] }), 'both');
  equal(roleOf(undefined, { prefill: special, decode: general }), null);
});
