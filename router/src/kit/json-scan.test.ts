import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemberFinder, keyIs, readScalarText, readString, scanItems, scanMembers } from './json-scan.ts';

/** Members as `key=value` as they are written, and what the scan came to. */
function membersOf(text: string, start = 0, end = Buffer.byteLength(text)): { members: string[]; next: number } {
  const bytes = Buffer.from(text);
  const members: string[] = [];
  const next = scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, valueEnd) => {
    members.push(`${bytes.toString('utf8', keyStart, keyEnd)}=${bytes.toString('utf8', valueStart, valueEnd)}`);
  });
  return { members, next };
}

function itemsOf(text: string): { items: string[]; next: number } {
  const bytes = Buffer.from(text);
  const items: string[] = [];
  const next = scanItems(bytes, 0, bytes.length, (start, end) => {
    items.push(bytes.toString('utf8', start, end));
  });
  return { items, next };
}

/** The values of names as they are written, '' for an absent one. */
function find(text: string, names: string[]): string[] {
  const bytes = Buffer.from(text);
  const spans = new Int32Array(2 * names.length).fill(7);
  new MemberFinder(names).find(bytes, 0, bytes.length, spans);
  return names.map((_, i) => (spans[2 * i]! < 0 ? '' : bytes.toString('utf8', spans[2 * i], spans[2 * i + 1])));
}

const isKey = (key: string, name: string): boolean => keyIs(Buffer.from(key), 0, Buffer.byteLength(key), name);
const stringOf = (value: string): string | null => readString(Buffer.from(value), 0, Buffer.byteLength(value));
const scalarOf = (value: string): string | null => readScalarText(Buffer.from(value), 0, Buffer.byteLength(value));

test('members are visited in order, those of nested objects are not', () => {
  assert.deepEqual(membersOf('{"a":1,"b":{"c":[2,{"d":3}]},"e":"f","":null}'), {
    members: ['a=1', 'b={"c":[2,{"d":3}]}', 'e="f"', '=null'],
    next: 45,
  });
});

test('spans hold no white space, and the end is where the object ends', () => {
  assert.deepEqual(membersOf(' \t\r\n{ "a" : 1 ,\n"b"\t:\r"x" , "c": [ 1 , 2 ] } {'), {
    members: ['a=1', 'b="x"', 'c=[ 1 , 2 ]'],
    next: 44,
  });
  assert.deepEqual(membersOf(' { } '), { members: [], next: 4 });
});

test('text in a string is never structure', () => {
  const tricky = [
    '{"user_id": 7}',
    '"user_id": 7',
    '\\',
    '\\\\',
    '\\"',
    '"},"user_id":7,{"',
    ']]]',
    '[[[',
    '"'.repeat(100),
    `${'\\'.repeat(101)}"`,
    `${'x'.repeat(15)}"`,
    `${'x'.repeat(16)}"`,
    `${'x'.repeat(17)}\\`,
    'é'.repeat(60),
    `${'line\n'.repeat(40)}"user_id": 7`,
  ];
  for (const text of tricky) {
    const value = JSON.stringify(text);
    assert.deepEqual(membersOf(`{"a":${value},"b":[${value},{"c":${value}}]}`).members, [
      `a=${value}`,
      `b=[${value},{"c":${value}}]`,
    ]);
    assert.deepEqual(membersOf(`{${value}:1,"b":2}`).members, [`${value.slice(1, -1)}=1`, 'b=2']);
  }
});

test('strings of every length, with an escape at every place, end where they end', () => {
  for (let length = 1; length < 70; length++) {
    for (let place = 0; place < length; place++) {
      const text = `${'x'.repeat(place)}"${'x'.repeat(length - place - 1)}`;
      const value = JSON.stringify(text);
      assert.deepEqual(membersOf(`{"a":${value},"b":1}`).members, [`a=${value}`, 'b=1']);
      assert.deepEqual(membersOf(`{"a":"${'\\'.repeat(2 * length)}","b":"${'x'.repeat(place)}"}`).members.length, 2);
    }
  }
});

test('arrays of ids end where they end, whatever comes in or after them', () => {
  const ids = Array.from({ length: 100 }, (_, i) => i * 1009).join();
  const values = [
    `[${ids}]`,
    `[[${ids}],[${ids}]]`,
    `[${ids},[${ids}],${ids}]`,
    `[${ids},"]",${ids}]`,
    `[${ids},{},${ids}]`,
    `[${ids},{"a":"]"},${ids}]`,
    `[${ids},{"a":[${ids}]},["[",${ids},"]"]]`,
    `{"a":[${ids}],"b":{"c":[[${ids}]]}}`,
    `[${' '.repeat(100)}]`,
    `{${' '.repeat(100)}}`,
    `[${' '.repeat(100)}"]"]`,
    `[${'1'.repeat(63)}]`,
    `[${'1'.repeat(64)}]`,
    `[${'1'.repeat(65)},[${'1'.repeat(64)},"]"],3]`,
  ];
  for (const value of values) {
    JSON.parse(value);
    for (const after of ['', ',"b":"]"', ',"b":[1,"["]', ` , "b" : [${ids}]`]) {
      const text = `{"a":${value}${after}}`;
      const { members, next } = membersOf(text);
      assert.equal(next, text.length);
      assert.equal(members[0], `a=${value}`);
      assert.equal(members.length, after === '' ? 1 : 2);
    }
  }
});

test('a false answer ends the scan, with the place it came to', () => {
  const bytes = Buffer.from('{"a":1,"b":[2],"c":}');
  let seen = 0;
  assert.equal(
    scanMembers(bytes, 0, bytes.length, () => ++seen < 2),
    14,
  );
  assert.equal(seen, 2);
  const items = Buffer.from('["a", "b", }');
  assert.equal(
    scanItems(items, 0, items.length, () => false),
    4,
  );
});

test('a document that ends too early is refused wherever it ends', () => {
  const long = 'x'.repeat(40);
  const text = ` { "a\\u0041" : "b\\"c" , "${long}":"${long}\\"${long}","d":[1,"]",{"e":null}],"f":{"g":[]},"h":-1.5e3,"i":[${'12,'.repeat(40)}3] }`;
  JSON.parse(text);
  for (let end = 0; end < text.length; end++) {
    assert.equal(membersOf(text.slice(0, end)).next, -1, text.slice(0, end));
    // What stands beyond the end makes no difference.
    assert.equal(membersOf(text, 0, end).next, -1, text.slice(0, end));
  }
  assert.equal(membersOf(text).next, text.length);
});

test('faults of form and keys are refused', () => {
  const noObject = ['', ' ', '1', '"a"', '[]', 'null', '}', '{', '\ufeff{}'];
  const badMembers = ['{,}', '{1:2}', '{a:1}', "{'a':1}", '{"a"}', '{"a":}', '{"a" 1}', '{"a":,}', '{"a"::1}'];
  const badSequences = ['{"a":1,}', '{"a":1,,"b":2}', '{"a":1 "b":2}', '{"a":[];"b":2}', '{"a":1 2}', '{"a":1"b"}'];
  const badEnds = ['{"a":[1]2}', '{"a":"b""c"}', '{"a":1]', '{"a":1,"b"]', '{"a":"b', '{"a":"b\\"}', '{"a":['];
  const badKeys = ['{"\\x":1}', '{"\\u12":1}', '{"\\u12g4":1}', '{"\\', '{"\\u004', '{"a\n":1}', '{"a\\n\t":1}'];
  const badValues = ['{"a":\u00a01}', '{"a":é}', '{"a":1\\n}', '{"a":{]', '{"a":\u0000}', `{"a":[${'1,'.repeat(50)}}`];
  const faulty = [noObject, badMembers, badSequences, badEnds, badKeys, badValues].flat();
  for (const text of faulty) assert.equal(membersOf(text).next, -1, text);
  for (const text of ['', '{}', '[', '[1', '[1,', '[1,]', '[,1]', '[1 2]', '["a" "b"]', '[1}', '["a', '[[1]']) {
    assert.equal(itemsOf(text).next, -1, text);
  }
});

test('faults within values are left to the engine', () => {
  const kept = ['01', 'NaN', 'nul', '-', '"\\q"', '"\n"', '[1 2,,"a""b"]', '{3}', '[}', '[[]}', '["a":1]'];
  for (const value of kept) assert.deepEqual(membersOf(`{"a":${value},"b":1}`).members, [`a=${value}`, 'b=1']);
});

test('items are visited in order, those of nested arrays are not', () => {
  assert.deepEqual(itemsOf(' [ 1 , [2,3] ,{"a":[4]},"]" ,null ] '), {
    items: ['1', '[2,3]', '{"a":[4]}', '"]"', 'null'],
    next: 35,
  });
  assert.deepEqual(itemsOf('[ ]'), { items: [], next: 3 });
});

test('a visitor may scan', () => {
  const bytes = Buffer.from('{"m":[{"r":"u"},{"r":"a"}],"n":1}');
  const seen: string[] = [];
  scanMembers(bytes, 0, bytes.length, (keyStart, keyEnd, start, end) => {
    seen.push(bytes.toString('utf8', keyStart, keyEnd));
    scanItems(bytes, start, end, (start, end) => {
      scanMembers(bytes, start, end, (_keyStart, _keyEnd, start, end) => {
        seen.push(readString(bytes, start, end)!);
      });
    });
  });
  assert.deepEqual(seen, ['m', 'u', 'a', 'n']);
});

test('a key is its content, however it is written', () => {
  for (const key of ['user', '\\u0075ser', 'us\\u0065r', 'use\\u0072', '\\u0075\\u0073\\u0065\\u0072']) {
    assert.ok(isKey(key, 'user'), key);
    assert.ok(!isKey(key, 'use') && !isKey(key, 'users') && !isKey(key, 'User') && !isKey(key, ''), key);
  }
  assert.ok(isKey('', '') && !isKey('', 'a'));
  assert.ok(isKey('\\"\\\\\\/\\b\\f\\n\\r\\t', '"\\/\b\f\n\r\t'));
  assert.ok(isKey('\\u002F\\u002f', '//'));
  // The bytes of a name with a backslash are those of another key.
  assert.ok(!isKey('a\\nb', 'a\\nb') && isKey('a\\\\nb', 'a\\nb'));
  for (const key of ['us\\', 'us\\u', 'us\\u006', 'us\\u00zz', 'us\\er', 'usér', 'us\\ud83d\\ude00']) {
    assert.ok(!isKey(key, 'user') && !isKey(key, 'us'), key);
  }
  // What follows the key is not a part of it.
  assert.ok(!keyIs(Buffer.from('us\\u0065r'), 0, 7, 'use') && !keyIs(Buffer.from('user'), 0, 3, 'user'));
});

test('several names are found in one pass, and of one name the last member counts', () => {
  const names = ['user', 'user_id', 'model', '', 'mogel', 'a"b'];
  assert.deepEqual(find('{"model":"m","user_id":12345678901234567890,"x":{"user":1}}', names), [
    '',
    '12345678901234567890',
    '"m"',
    '',
    '',
    '',
  ]);
  assert.deepEqual(find('{"user":1,"mogel":2,"us\\u0065r":"3","":4,"\\u006dodel":5,"a\\"b":6}', names), [
    '"3"',
    '',
    '5',
    '4',
    '2',
    '6',
  ]);
  assert.deepEqual(find('{"us\\u0065r":1,"user":2,"user":null}', ['user']), ['null']);
  assert.deepEqual(find('{"a":1}', []), []);
  assert.deepEqual(find('{"a":1}', ['a', 'a']), ['1', '1']);
});

test('a finder is used again, and says where the object ended', () => {
  const finder = new MemberFinder(['a']);
  const spans = new Int32Array(2);
  assert.equal(finder.find(Buffer.from(' {"a":1}x'), 0, 9, spans), 8);
  assert.deepEqual([...spans], [6, 7]);
  assert.equal(finder.find(Buffer.from('{"b":1}'), 0, 7, spans), 7);
  assert.deepEqual([...spans], [-1, -1]);
  assert.equal(finder.find(Buffer.from('{"a":1,'), 0, 7, spans), -1);
  assert.deepEqual([...spans], [5, 6]);
});

test('strings are decoded, and nothing else is one', () => {
  for (const text of ['', 'a', 'rollout-1', 'é𝄞\u2028', 'a"b\\c/d\b\f\n\r\t\0', '\ud800', '\ufeffa']) {
    assert.equal(stringOf(JSON.stringify(text)), text);
  }
  assert.equal(stringOf('"\\u00e9\\uD834\\udd1e\\/"'), 'é𝄞/');
  for (const value of [
    '',
    '"',
    'a',
    '"a',
    'a"',
    '1',
    'null',
    '[]',
    '{"a":1}',
    '"\\"',
    '"\\q"',
    '"a\n"',
    '"a"b"',
    '"\\u12"',
  ]) {
    assert.equal(stringOf(value), null, value);
  }
  assert.equal(readString(Buffer.from([0x22, 0xff, 0x22]), 0, 3), '\ufffd');
});

test('scalars are read as they are written', () => {
  assert.equal(scalarOf('"a\\u0062"'), 'ab');
  for (const text of ['0', '-0', '12345678901234567890', '1.50', '-1e+05', 'true', 'false']) {
    assert.equal(scalarOf(text), text);
  }
  for (const text of [
    '',
    'null',
    '{}',
    '[1]',
    'NaN',
    '-',
    '01',
    '1.',
    '.5',
    '+1',
    '1e',
    'True',
    '"a',
    '1 ',
    '1,2',
    ' 1',
  ]) {
    assert.equal(scalarOf(text), null, text);
  }
});

/** Runs a scan and counts the bytes that its native searches went over. */
function searchedBytes(scan: () => void): number {
  const { indexOf, includes } = Buffer.prototype;
  let searched = 0;
  const search = function (this: Buffer, byte: number, from = 0): number {
    const at = indexOf.call(this, byte, from);
    searched += (at < 0 ? this.length : at) - from + 1;
    return at;
  };
  Buffer.prototype.indexOf = search as Buffer['indexOf'];
  Buffer.prototype.includes = function (this: Buffer, byte: number) {
    return search.call(this, byte) >= 0;
  } as Buffer['includes'];
  try {
    scan();
  } finally {
    Object.assign(Buffer.prototype, { indexOf, includes });
  }
  return searched;
}

test('hostile documents are searched in linear time', () => {
  const nested = (open: string, close: string, count: number): string =>
    `{"a":${open.repeat(count)}1${close.repeat(count)}}`;
  const digits = '1'.repeat(70);
  const texts = [
    `{"a":"${'\\"'.repeat(100_000)}"}`,
    `{"a":"${'\\\\'.repeat(100_000)}"}`,
    `{"a":"${'\\'.repeat(200_000)}`,
    `{"a":"${`${'x'.repeat(38)}\\"`.repeat(5_000)}"}`,
    nested('[', ']', 100_000),
    nested('{"":', '}', 40_000),
    nested(`[${digits},`, ']', 3_000),
    nested(`[${digits},{"":`, '}]', 3_000),
    nested(`[${digits},"[",`, ']', 3_000),
    nested(`[${digits},"]",`, ']', 3_000),
    `{"a":[${`[${digits},"]"],`.repeat(3_000)}1]}`,
    `{${`"a":[${digits},"]"],`.repeat(3_000)}"b":1}`,
    `{${`"a":[${digits}],`.repeat(3_000)}"b":1}`,
    `{"a":${`[${digits},`.repeat(3_000)}`,
    '{"a":"'.repeat(30_000),
  ];
  for (const text of texts) {
    const bytes = Buffer.from(text);
    const searched = searchedBytes(() => scanMembers(bytes, 0, bytes.length, () => {}));
    assert.ok(searched <= 3 * text.length, `${searched} bytes of ${text.length} searched: ${text.slice(0, 100)}`);
  }
  const ids = Buffer.from(`{"a":[${digits}],"b":"${digits}"}`);
  const searched = searchedBytes(() => scanMembers(ids, 0, ids.length, () => {}));
  assert.ok(searched > 70, 'the count sees the searches');
});
