import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { MemberSearch, keysOf } from '../../kit/member-search.ts';
import { EventScan, SCANNED_NAMES } from './event-scan.ts';

function scanned(bytes: Buffer, cuts: readonly number[]): EventScan {
  const scan = new EventScan();
  const search = new MemberSearch(keysOf(SCANNED_NAMES), {
    value: (name, byte) => scan.value(name, byte),
    rest: () => {},
  });
  let from = 0;
  for (const cut of [...cuts.map((cut) => cut % bytes.length).toSorted((a, b) => a - b), bytes.length]) {
    search.push(bytes, from, cut);
    from = cut;
  }
  return scan;
}

const word = fc.constantFrom(
  'index',
  '"index":7',
  'output_ids',
  '"completion_tokens":9',
  '\\',
  ']',
  '[',
  'é',
  ',',
  'meta_info',
);
const triples = fc.array(fc.tuple(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.nat(), fc.option(word)), {
  maxLength: 6,
});
const answer = fc.record(
  {
    text: fc.array(word, { maxLength: 8 }).map((words) => words.join('')),
    output_ids: fc.array(fc.nat(200_000), { maxLength: 30 }),
    meta_info: fc.record(
      {
        id: word,
        input_token_logprobs: triples,
        completion_tokens: fc.nat(),
        output_token_logprobs: triples,
      },
      { requiredKeys: ['id'] },
    ),
    index: fc.nat(9),
  },
  { requiredKeys: ['text'] },
);

test('it tells what a parser tells, wherever its pieces begin', () => {
  fc.assert(
    fc.property(
      answer,
      fc.array(fc.nat(), { maxLength: 12 }),
      fc.constantFrom('', ' ', '\n '),
      (value, cuts, space) => {
        const bytes = Buffer.from(`data: ${JSON.stringify(value, null, space)}\n\n`);
        const scan = scanned(bytes, cuts);
        const { output_ids: ids, meta_info: info, index } = value;
        assert.deepEqual(
          [scan.index, scan.hasIndex, scan.hasInfo],
          [index === undefined ? '' : String(index), index !== undefined, info !== undefined],
        );
        const list = ids ?? info?.output_token_logprobs;
        const total = info?.completion_tokens;
        assert.deepEqual(scan.counts, list === undefined || total === undefined ? null : { ids: list.length, total });
      },
    ),
    { numRuns: 3_000 },
  );
});
