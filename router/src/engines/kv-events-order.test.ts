import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { KvOrder } from './kv-events-order.ts';

test('a publisher that drops any batches, and maybe gives them out again, is heard in order or not at all', () => {
  const step = fc.record({ isSent: fc.boolean(), isKept: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.boolean(), (steps, canAsk) => {
      const order = new KvOrder(canAsk);
      const heard: (number | 'gap')[] = [];
      const take = (seq: number): void => {
        heard.push(seq);
        order.took(seq, seq);
      };
      for (const [seq, { isSent }] of steps.entries()) {
        if (!isSent) continue;
        let verdict = order.live(seq, seq);
        if (verdict === 'ask') {
          assert.ok(canAsk);
          for (let i = order.ask(); i < seq && (steps[i]!.isSent || steps[i]!.isKept); i++) {
            if (i >= (order.next ?? 0)) take(i);
          }
          verdict = order.live(seq, seq);
          // What could not be brought once is not asked for again.
          if (verdict === 'ask') verdict = (order.ask(), order.live(seq, seq));
          assert.notEqual(verdict, 'ask');
        }
        assert.ok(verdict === 'take' || verdict === 'gap', verdict);
        if (verdict === 'gap') {
          heard.push('gap');
          order.forget();
        }
        take(seq);
      }
      for (let i = 1; i < heard.length; i++) {
        const [before, now] = [heard[i - 1]!, heard[i]!];
        if (typeof before === 'number' && typeof now === 'number') assert.equal(now, before + 1);
      }
      const sentSeqs = steps.flatMap(({ isSent }, seq) => (isSent ? [seq] : []));
      assert.deepEqual(
        sentSeqs.filter((seq) => !heard.includes(seq)),
        [],
      );
    }),
  );
});

test('what a replay brought is skipped when it comes live, later numbers of the same publisher are not', () => {
  const order = new KvOrder(true);
  order.ask();
  for (let seq = 0; seq < 5; seq++) order.took(seq, 100 + seq);
  assert.deepEqual([order.live(3, 103), order.live(4, 104), order.live(5, 105)], ['skip', 'skip', 'take']);
});

test('a lower number is another publisher: when it was had live, or is from a later time', () => {
  const order = new KvOrder(true);
  order.ask();
  for (let seq = 0; seq < 5; seq++) order.took(seq, 100 + seq);
  assert.equal(order.live(2, 200), 'restart');
  assert.equal(order.live(4, 104), 'skip');
  assert.equal(order.live(4, 104), 'restart');
});
