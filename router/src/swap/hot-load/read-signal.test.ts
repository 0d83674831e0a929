import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { readSignal } from './read-signal.ts';

const read = (body: unknown) => readSignal(JSON.stringify(body));

test('a signal with the fields of the SDK is read', () => {
  deepEqual(read({ identity: 'step-1', reset_prompt_cache: true }), { identity: 'step-1', reset: 'all', delta: null });
  deepEqual(
    read({
      identity: 'v2',
      incremental_snapshot_metadata: {
        previous_snapshot_identity: 'v1',
        compression_format: 'arc_v2',
        checksum_format: 'alder32',
      },
      validation: { extra_fields_ignore: ['torch_dtype'] },
    }),
    { identity: 'v2', reset: 'all', delta: { previous: 'v1', compression: 'arc_v2', checksum: 'alder32' } },
  );
});

for (const [given, wanted] of [
  ['all', 'all'],
  ['new_session', 'new_session'],
  ['none', 'none'],
  [true, 'all'],
  [false, 'none'],
] as const) {
  test(`reset_prompt_cache ${JSON.stringify(given)} is ${wanted}`, () => {
    deepEqual(read({ identity: 'v', reset_prompt_cache: given }), { identity: 'v', reset: wanted, delta: null });
  });
}

for (const [body, field] of [
  [{ identity: 'v', path: '/x' }, 'path'],
  [{ other: 1 }, 'other'],
  [{ identity: 'v', validation: { more: 1 } }, 'validation.more'],
  [
    { identity: 'v', incremental_snapshot_metadata: { previous_snapshot_identity: 'u', more: 1 } },
    'incremental_snapshot_metadata.more',
  ],
] as const) {
  test(`the field ${field} is refused by its name`, () => {
    equal(read(body), `Extra inputs are not permitted, field: '${field}'`);
  });
}

test('what is missing or wrong is named', () => {
  equal(read({}), "Field required, field: 'identity'");
  match(read({ identity: 'v', reset_prompt_cache: 'some' }) as string, /^reset_prompt_cache: must be all, new_session/);
  match(read({ identity: 7 }) as string, /^identity: /);
  match(read([]) as string, /^The body: /);
  match(readSignal('{') as string, /^The body is not JSON: /);
  match(readSignal('') as string, /^The body is not JSON: /);
});

test('an identity is one segment of a path', () => {
  for (const identity of ['.', '..', '', 'a/b', 'a b', 'ä', '../x', 'x\n'])
    match(read({ identity }) as string, /^identity: must/);
  for (const identity of ['...', '.a', 'A-b_c.9']) ok(typeof read({ identity }) === 'object', identity);
});
