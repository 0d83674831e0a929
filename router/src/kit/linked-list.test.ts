import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { LinkedList, type ListNode } from './linked-list.ts';

test('it is a list in the order of pushing, less what was removed, wherever that stood', () => {
  const step = fc.oneof(fc.constant(null), fc.nat());
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const chain = new LinkedList<number>();
      const links: ListNode<number>[] = [];
      steps.forEach((at, i) => {
        if (at === null) links.push(chain.push(i));
        else if (links.length > 0) chain.remove(links.splice(at % links.length, 1)[0]!);
        const forward: number[] = [];
        for (let link = chain.first; link !== null; link = link.next) forward.push(link.value);
        assert.deepEqual(
          forward,
          links.map(({ value }) => value),
        );
      });
    }),
  );
});
