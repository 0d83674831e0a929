import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messageKey } from './equality.ts';
import type { Message } from '../read/message.ts';
import { type ChatTurn, SessionTree } from './session-tree.ts';

const keysOf = (messages: readonly Message[]): string[] => messages.map((one) => messageKey(one, 'loose_tool_call'));
const user = (content: string): Message => ({ role: 'user', content });
const answer = (content: string): Message => ({ role: 'assistant', content });

function add(tree: SessionTree, id: string, parent: ChatTurn | null, ...messages: Message[]): ChatTurn {
  const turn: ChatTurn = {
    id,
    parent,
    children: [],
    messages,
    keys: keysOf(messages),
    depth: (parent?.depth ?? 0) + messages.length,
    index: (parent?.index ?? -1) + 1,
    keeps: 0,
    ids: new Int32Array(0),
    text: '',
    isAfresh: false,
    isTorn: false,
    sampled: 0,
    rest: '',
    rendering: { tools: null, more: new Map() },
  };
  tree.add(turn);
  return turn;
}

test('a request goes on behind the turn with the most of its messages; of equal ones behind the newest', () => {
  const tree = new SessionTree();
  const a = add(tree, 'a', null, user('1'), answer('one'));
  const lost = add(tree, 'lost', a, user('2'), answer('two'));
  const again = add(tree, 'again', a, user('2'), answer('two'));
  const other = add(tree, 'other', a, user('2'), answer('zwei'));
  const history = [user('1'), answer('one'), user('2')];
  assert.equal(tree.attach(keysOf([user('1')])), null);
  assert.equal(tree.attach(keysOf(history)), a, 'a retry');
  assert.equal(tree.attach(keysOf([...history, answer('two'), user('3')])), again);
  assert.equal(tree.attach(keysOf([...history, answer('zwei'), user('3')])), other);
  assert.equal(tree.hasEqual(again, keysOf([...history, answer('two'), user('3')])), true);
  assert.equal(tree.hasEqual(other, keysOf([...history, answer('zwei'), user('3')])), false);
  assert.equal(
    tree.attach(keysOf([...history, answer('deux'), user('3')])),
    a,
    'an answer that nobody gave is a new branch',
  );
  assert.equal(tree.attach(keysOf([user('0')])), null);
  const deep = add(tree, 'deep', lost, user('3'), answer('three'));
  assert.equal(
    tree.attach(keysOf([...history, answer('two'), user('3'), answer('three'), user('4')])),
    deep,
    'though a newer one has less',
  );
});

test('what clients send back in another spelling is the same message, as far as is wanted', () => {
  const call = (args: unknown) => ({ id: 'c1', type: 'function', function: { name: 'f', arguments: args } });
  const stored = { role: 'assistant', content: '', reasoning_content: 'hm', tool_calls: [call('{"a": 1, "b": [2]}')] };
  const replayed = { role: 'assistant', content: null, tool_calls: [call('{"b":[2],"a":1}')], refusal: null };
  const same = (mode: 'strict' | 'loose_tool_call' | 'role_content_only', a: Message, b: Message): boolean =>
    messageKey(a, mode) === messageKey(b, mode);
  assert.ok(same('loose_tool_call', stored, replayed));
  assert.ok(!same('strict', stored, replayed));
  assert.ok(!same('loose_tool_call', stored, { ...replayed, tool_calls: [call('{"a":2}')] }));
  assert.ok(!same('loose_tool_call', stored, { ...replayed, role: 'user' }));
  assert.ok(same('role_content_only', stored, { role: 'assistant', content: '' }));
  assert.ok(
    same('loose_tool_call', user('ab'), {
      role: 'user',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    }),
  );
  assert.ok(!same('strict', user('ab'), { role: 'user', content: [{ type: 'text', text: 'ab' }] }));
  assert.ok(
    same('strict', { role: 'user', content: 'a' }, { content: 'a', role: 'user' }),
    'the order of members says nothing',
  );
  // Numbers that JavaScript would make one of.
  assert.ok(
    !same(
      'loose_tool_call',
      { ...stored, tool_calls: [call('{"a":9007199254740993}')] },
      { ...stored, tool_calls: [call('{"a":9007199254740992}')] },
    ),
  );
});
