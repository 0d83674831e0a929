import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemberFinder, readScalarText, readString, scanItems, scanMembers } from '../../src/kit/json-scan.ts';
import { Chance, Failures, caseCount } from './chance.ts';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const NAMES = ['user', 'user_id', 'model', 'text', 'a"b', ''];
const KEYS = [...NAMES, 'used', 'users', 'User', 'us', 'x', 'é', 'model\n', '__proto__', '7', 'a\\"b', '𝄞', 'text_'];
const TEXTS = [
  '{"user_id": 7}',
  '"user_id": 7, ',
  '","user":"x',
  '\\"user":1',
  'user',
  '"',
  '\\',
  '\\\\"',
  ']',
  '[',
  '}],"user":[{',
  'é\u2028𝄞',
  '\ud800',
  '\0\n\t',
  '/',
];
const NUMBERS = ['0', '-0', '7', '-12.50', '1e5', '2E-3', '12345678901234567890', '0.1e+10'];
const LITERALS = ['true', 'false', 'null'];

function space(chance: Chance): string {
  if (!chance.oneIn(6)) return '';
  return chance.pick([' ', '  ', '\n', '\t', '\r\n', ' '.repeat(chance.int(100))]);
}

/** A string as some serialiser may write it: any character may be escaped, some must be. */
function written(chance: Chance, text: string): string {
  const plain = JSON.stringify(text);
  if (!chance.oneIn(3)) return plain;
  const hex = (unit: number): string => `\\u${unit.toString(16).padStart(4, '0')}`;
  const units = Array.from({ length: text.length }, (_, i) => {
    const unit = text.charCodeAt(i);
    if (chance.oneIn(3)) return chance.oneIn(2) ? hex(unit) : hex(unit).toUpperCase().replace('U', 'u');
    if (text[i] === '/' && chance.oneIn(2)) return '\\/';
    return unit < 32 || unit > 126 || unit === 34 || unit === 92 ? hex(unit) : text[i]!;
  });
  return `"${units.join('')}"`;
}

function randomString(chance: Chance): string {
  let text = '';
  for (let left = chance.int(4); left > 0; left--) {
    text += chance.oneIn(3) ? 'x'.repeat(chance.int(50)) : chance.pick(TEXTS);
  }
  return written(chance, text);
}

function joined(chance: Chance, open: string, close: string, parts: string[]): string {
  const spaced = parts.map((part) => `${space(chance)}${part}${space(chance)}`);
  return `${open}${spaced.length === 0 ? space(chance) : spaced.join(',')}${close}`;
}

function randomObject(chance: Chance, depth: number): string {
  const members = Array.from({ length: chance.int(6) }, () => {
    const key = written(chance, chance.pick(KEYS));
    return `${key}${space(chance)}:${space(chance)}${randomValue(chance, depth + 1)}`;
  });
  return joined(chance, '{', '}', members);
}

function randomArray(chance: Chance, depth: number): string {
  const isLong = chance.oneIn(3);
  const ids = Array.from({ length: isLong ? chance.int(60) : 0 }, () => String(chance.int(150_000)));
  const items = Array.from({ length: chance.int(isLong ? 2 : 5) }, () => randomValue(chance, depth + 1));
  return joined(chance, '[', ']', chance.oneIn(2) ? [...ids, ...items] : [...items, ...ids]);
}

function randomValue(chance: Chance, depth: number): string {
  const kind = chance.int(depth > 2 ? 4 : 7);
  if (kind < 2) return randomString(chance);
  if (kind === 2) return chance.pick(NUMBERS);
  if (kind === 3) return chance.pick(LITERALS);
  return kind === 4 ? randomArray(chance, depth) : randomObject(chance, depth);
}

const HAZARDS = [
  '"',
  '\\',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  ' ',
  '\n',
  '1',
  'u',
  'n',
  '\0',
  'é',
  '""',
  '\\"',
  '\\u',
  '"x":1,',
];

function mutated(chance: Chance, text: string): string {
  if (chance.oneIn(4)) return text.slice(0, chance.int(text.length + 1));
  let broken = text;
  for (let left = chance.between(1, 3); left > 0; left--) {
    const at = chance.int(broken.length + 1);
    const hazard = chance.oneIn(4) ? '' : chance.pick(HAZARDS);
    broken = broken.slice(0, at) + hazard + broken.slice(at + chance.int(3));
  }
  return broken;
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** What the scan finds in a value that JSON.parse takes is what JSON.parse finds, all the way down. */
function checkValue(bytes: Buffer, start: number, end: number, value: Json): void {
  assert.ok(start < end);
  assert.ok(bytes[start]! > 32 && bytes[end - 1]! > 32, 'white space in a span');
  const text = bytes.toString('utf8', start, end);
  const isArray = Array.isArray(value);
  if (typeof value === 'string') assert.equal(readScalarText(bytes, start, end), value);
  else if (typeof value === 'number' || typeof value === 'boolean') {
    assert.equal(readScalarText(bytes, start, end), text);
    assert.ok(Object.is(JSON.parse(text), value), 'another value');
  } else assert.equal(readScalarText(bytes, start, end), null);
  if (typeof value !== 'string') assert.equal(readString(bytes, start, end), null);
  if (isArray) checkArray(bytes, start, end, value);
  else assert.equal(scanItems(bytes, start, end, refuse), -1);
  if (typeof value === 'object' && value !== null && !isArray) checkObject(bytes, start, end, value);
  else assert.equal(scanMembers(bytes, start, end, refuse), -1);
}

const refuse = (): void => assert.fail('visited');

function checkArray(bytes: Buffer, start: number, end: number, value: Json[]): void {
  let count = 0;
  const next = scanItems(bytes, start, end, (start, end) => checkValue(bytes, start, end, value[count++]!));
  assert.equal(next, end);
  assert.equal(count, value.length);
}

function checkObject(bytes: Buffer, start: number, end: number, value: { [key: string]: Json }): void {
  const found = new Map<string, [number, number]>();
  const next = scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, valueEnd, isEscaped) => {
    const key = readString(bytes, keyStart - 1, keyEnd + 1);
    assert.ok(key !== null);
    assert.equal(isEscaped, bytes.subarray(keyStart, keyEnd).includes(0x5c));
    found.set(key, [valueStart, valueEnd]);
  });
  assert.equal(next, end);
  assert.equal([...found.keys()].sort().join('\n,'), Object.keys(value).sort().join('\n,'));
  for (const [key, [start, end]] of found) checkValue(bytes, start, end, value[key]!);
  const spans = new Int32Array(2 * NAMES.length);
  assert.equal(finder.find(bytes, start, end, spans), end);
  for (const [i, name] of NAMES.entries()) {
    const [from, to] = found.get(name) ?? [-1, -1];
    assert.equal(spans[2 * i], from, name);
    assert.equal(spans[2 * i + 1], to, name);
  }
}

/** A document that JSON.parse refuses may be taken for its values only: with zeros for them it must be fine. */
function checkForm(bytes: Buffer, start: number, end: number): boolean {
  let form = '';
  let last = start;
  const replace = (from: number, to: number): void => {
    assert.ok(last <= from && from < to && to <= end, 'a span out of order');
    form += `${bytes.toString('utf8', last, from)}0`;
    last = to;
  };
  const isArray = bytes.toString('utf8', start, end).trimStart().startsWith('[');
  const next = isArray
    ? scanItems(bytes, start, end, replace)
    : scanMembers(bytes, start, end, (_keyStart, _keyEnd, from, to) => replace(from, to));
  assert.ok(next === -1 || (next > start && next <= end));
  if (next === -1) return false;
  form += bytes.toString('utf8', last, next);
  assert.ok(parsed(form) !== undefined, `taken: ${form}`);
  return true;
}

const finder = new MemberFinder(NAMES);

/**
 * A key with a backslash in it. When V8 (13.6) has read one, it takes later keys that are written with escapes for it, where those
 * are letter by letter the same: after `a\\\"b` JSON.parse reads `a\"b\"` as the former.
 */
const BACKSLASH_KEY = /"(?:[^"\\]|\\.)*\\(?:\\|u005c)(?:[^"\\]|\\.)*"\s*:/is;

test('the scan finds in a JSON document what JSON.parse finds, and in a broken one nothing out of place', (t) => {
  const chance = new Chance();
  const count = caseCount(0.25);
  t.diagnostic(`FUZZ_SEED=${chance.seed}, ${count} documents`);
  const failures = new Failures();
  const seen = { valid: 0, validAfterMutation: 0, taken: 0, refused: 0 };
  for (let i = 0; i < count; i++) {
    const whole = chance.oneIn(10) ? randomArray(chance, 0) : randomObject(chance, 0);
    const isMutated = chance.oneIn(2);
    // Through bytes, as lone surrogates have no UTF-8; and something else stands before and after the document.
    const body = Buffer.from(isMutated ? mutated(chance, whole) : whole);
    const [before, after] = [chance.pick(['', '{"', '[']), chance.pick(['', '"}]', ']', '"', ',"user":1}'])];
    const bytes = Buffer.concat([Buffer.from(before), body, Buffer.from(after)]);
    const start = before.length;
    const end = start + body.length;
    const text = body.toString();
    if (BACKSLASH_KEY.test(text)) continue;
    failures.try(
      () => JSON.stringify([before, text, after]),
      () => {
        const value = parsed(text);
        if (!isMutated) assert.ok(value !== undefined, 'the generator writes no JSON');
        if (value === undefined) {
          seen[checkForm(bytes, start, end) ? 'taken' : 'refused']++;
          return;
        }
        seen[isMutated ? 'validAfterMutation' : 'valid']++;
        const inset = text.length - text.trimStart().length;
        checkValue(bytes, start + inset, start + Buffer.byteLength(text.trimEnd()), value);
      },
    );
  }
  failures.check();
  t.diagnostic(JSON.stringify(seen));
  for (const seenCount of Object.values(seen)) assert.ok(seenCount > count * 0.02, JSON.stringify(seen));
});
