import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { loadPolicy } from './load-policy.ts';
import { policies } from './built-in-policies.ts';

const { fleet, workers } = fleetOfSize(3);
const context = policyContext(fleet);
const noFault = (): void => assert.fail('a fault');

/** A module with this text; its path. */
function moduleOf(t: TestContext, text: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'turnout-policy-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const path = join(directory, 'mine.mjs');
  writeFileSync(path, text);
  return path;
}

test('names are known with - and _, and as others call them', async () => {
  for (const name of Object.keys(policies)) {
    const loaded = await loadPolicy(name.replaceAll('_', '-'), context, noFault);
    assert.equal(loaded.name, name);
    loaded.policy.close?.();
  }
  assert.equal((await loadPolicy('consistent-hashing', context, noFault)).name, 'consistent_hash');
});

test('an unknown name is refused with the list of known names', async () => {
  for (const name of ['fastest', '', 'constructor', '__proto__', 'toString']) {
    await assert.rejects(loadPolicy(name, context, noFault), (error: Error) =>
      error.message.startsWith(`There is no policy "${name}". Use one of rollout, least_inflight`),
    );
  }
});

test('a module of the user chooses as the built-in ones do', async (t) => {
  const path = moduleOf(
    t,
    `export default ({ fleet }) => ({ needs: 'nothing', choose: (x, workers) => workers.at(-1).alone, fleet });`,
  );
  const { name, policy } = await loadPolicy(path, context, noFault);
  assert.equal(name, path);
  assert.equal(policy.choose(exchangeOf(), workers), workers[2]!.alone);
});

test('a module that is no policy is refused in words', async (t) => {
  const refused: [string, RegExp][] = [
    ['export const policy = 1;', /no default export that is a function/],
    ['export default 1;', /no default export that is a function/],
    ['export default () => null;', /made nothing with a choose\(\) method/],
    ['export default () => ({ needs: "nothing" });', /made nothing with a choose\(\) method/],
    ['export default () => ({ choose() {} });', /has needs: undefined, expected one of nothing, headers, key, prompt/],
    ['export default () => ({ choose() {}, needs: "all" });', /has needs: "all"/],
    ['export default (', /can't be loaded/],
    ['throw new Error("on its own");', /can't be loaded: on its own/],
    ['export default () => { throw new Error("no file"); };', /can't be made: no file/],
    ['export default (context) => context.builtIn("fastest");', /can't be made: There is no policy "fastest"/],
  ];
  for (const [text, words] of refused) await assert.rejects(loadPolicy(moduleOf(t, text), context, noFault), words);
  await assert.rejects(loadPolicy('./not/there.mjs', context, noFault), /can't be loaded/);
});

test('a module may build on a built-in policy, and take its time to be made', async (t) => {
  const path = moduleOf(
    t,
    `export default async (context) => {
       const base = context.builtIn('least-inflight');
       return { ...base, choose: (x, workers) => base.choose(x, workers.slice(1)) };
     };`,
  );
  const { policy } = await loadPolicy(path, context, noFault);
  const chosen = new Set(Array.from({ length: 9 }, () => policy.choose(exchangeOf(), workers)));
  assert.deepEqual(chosen, new Set([workers[1]!.alone, workers[2]!.alone]));
});

test('a module that was edited is loaded anew', async (t) => {
  const text = (at: number): string =>
    `export default () => ({ needs: 'nothing', choose: (x, all) => all.at(${at}).alone });`;
  const path = moduleOf(t, text(0));
  const first = await loadPolicy(path, context, noFault);
  writeFileSync(path, text(1));
  utimesSync(path, 1, 1);
  const second = await loadPolicy(path, context, noFault);
  assert.equal(first.policy.choose(exchangeOf(), workers), workers[0]!.alone);
  assert.equal(second.policy.choose(exchangeOf(), workers), workers[1]!.alone);
});

test('an answer that is neither a placement among the workers given nor a hold is a fault', async (t) => {
  const answers: Record<string, boolean> = {
    undefined: false,
    null: false,
    'workers[0]': false,
    'workers[0].alone': true,
    'Promise.resolve(workers[0].alone)': false,
    '{ legs: [] }': false,
    '{ legs: [null] }': false,
    '{ legs: [{ worker: context.fleet.workers[2], role: "regular" }] }': false,
    '{ hold: "later", maxMs: 10 }': true,
    '{ hold: "later" }': false,
  };
  for (const [text, isGood] of Object.entries(answers)) {
    const path = moduleOf(t, `export default (context) => ({ needs: 'nothing', choose: (x, workers) => (${text}) });`);
    const { policy } = await loadPolicy(path, context, () => {});
    const choose = () => policy.choose(exchangeOf(), workers.slice(0, 2));
    if (isGood) assert.ok(choose(), text);
    else assert.throws(choose, /choose\(\) has to answer worker\.alone/, text);
  }
});

test('a wrong result of an optional method is a fault, and a neutral result takes its place', async (t) => {
  const { url } = workers[0]!;
  const candidate = (terms: object) => [{ worker: url, terms }];
  const results: [
    method: 'explain' | 'whyMoved' | 'heldRank' | 'nextHeld' | 'indexSize' | 'describe',
    wrong: unknown[],
    neutral: unknown,
    right: unknown[],
  ][] = [
    [
      'explain',
      [
        undefined,
        Promise.resolve([]),
        {},
        [null],
        [{ worker: workers[0], terms: {} }],
        [{ worker: url }],
        candidate({ load: '1' }),
        candidate({ load: 1n }),
      ],
      [],
      [[], candidate({ load: 1, total: Number.NaN })],
    ],
    [
      'whyMoved',
      [undefined, Promise.resolve({ reason: 'load' }), {}, { reason: 'mine' }, { reason: 'cheaper', savedSecs: '1' }],
      { reason: 'policy' },
      [{ reason: 'load' }, { reason: 'cheaper', savedSecs: 1 }],
    ],
    ['heldRank', [undefined, '1', Number.NaN], 0, [-1.5]],
    ['nextHeld', [undefined, exchangeOf()], null, [null]],
    ['indexSize', [undefined, { blocks: 1 }], { blocks: 0, bytes: 0 }, [{ blocks: 1, bytes: 2 }]],
    ['describe', [undefined, Promise.resolve({}), { open: 1n }], {}, [{}, { open: 1 }]],
  ];
  const path = moduleOf(
    t,
    `const result = () => globalThis.resultOfPolicy;
     export default () => ({ needs: 'nothing', choose: (x, w) => w[0].alone, explain: result, whyMoved: result, heldRank: result, nextHeld: result, indexSize: result, describe: result });`,
  );
  const faults: string[] = [];
  const { policy } = await loadPolicy(path, context, (where) => faults.push(where));
  const resultOf = (method: (typeof results)[0][0], given: unknown): unknown => {
    Object.assign(globalThis, { resultOfPolicy: given });
    return (policy[method] as (...args: unknown[]) => unknown)([], workers);
  };
  for (const [method, wrong, neutral, right] of results) {
    faults.length = 0;
    for (const given of wrong) assert.deepEqual(resultOf(method, given), neutral);
    assert.deepEqual(
      faults,
      ['1', '2', '4', '8'].slice(0, 1 + Math.floor(Math.log2(wrong.length))).map(() => method),
    );
    faults.length = 0;
    for (const given of right) assert.equal(resultOf(method, given), given);
    assert.deepEqual(faults, []);
  }
});
