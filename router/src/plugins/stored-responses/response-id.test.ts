import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { responseIdReader } from './response-id.ts';

/** Reads it in pieces of each size. */
function idsIn(text: string, isStream: boolean, sizes = [1, 7, 100, 65_536]): string[][] {
  return sizes.map((size) => {
    const found: string[] = [];
    const reader = responseIdReader(isStream, (id) => found.push(id));
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += size) reader.observe(bytes, at, Math.min(bytes.length, at + size));
    return found;
  });
}
const each = (id: string): string[][] => [[id], [id], [id], [id]];
const NONE: string[][] = [[], [], [], []];

test('the id of a whole response, at any place, and no other id', () => {
  const output = [{ id: 'msg_1', text: '"id":"resp_false"' }];
  deepEqual(idsIn(JSON.stringify({ id: 'resp_1', output }), false)[3], ['resp_1']);
  deepEqual(idsIn(JSON.stringify({ output, id: 'resp_1' }), false)[3], ['resp_1']);
  deepEqual(idsIn(JSON.stringify({ id: 'resp_1', output: 'x'.repeat(5_000) }), false), each('resp_1'));
  for (const text of ['{"output":[{"id":"msg_1"}]}', '[{"id":"a"}]', 'no JSON', '{"id":7}', '{"id":null}']) {
    deepEqual(idsIn(text, false), NONE, text);
  }
});

test('the id of a streamed response: of the first event that has one', () => {
  const event = (data: object): string => `event: e\ndata: ${JSON.stringify(data)}\n\n`;
  const created = event({ type: 'response.created', response: { object: 'response', id: 'resp_1' } });
  const completed = event({ response: { id: 'resp_1' }, type: 'response.completed' });
  deepEqual(idsIn(created + completed, true), each('resp_1'));
  const item = event({ type: 'response.output_item.added', item: { id: 'msg_1' }, id: 'x' });
  deepEqual(idsIn(`: ping\n\n${item}${completed}data: [DONE]\n\n`, true), each('resp_1'));
  deepEqual(idsIn(item, true), NONE);
});

test('of a body or event that has no id in its first megabyte nothing is kept', () => {
  const long = 'x'.repeat(3_000_000);
  deepEqual(idsIn(`{"output":"${long}","id":"resp_1"}`, false, [65_536]), [[]]);
  deepEqual(idsIn(`data: {"a":"${long}"}\n\ndata: {"response":{"id":"resp_1"}}\n\n`, true, [65_536]), [[]]);
});
