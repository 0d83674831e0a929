import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HEX_VALUE, IS_HOST, IS_TARGET, IS_TOKEN, IS_VALUE } from './bytes.ts';

/** The bytes of a class as the text they stand for. */
const members = (table: Uint8Array): string =>
  String.fromCharCode(...Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => table[byte] === 1));

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const digits = '0123456789';
const sorted = (text: string): string => [...text].sort().join('');

test('a token is made of letters, digits and the 15 marks of RFC 9110 section 5.6.2', () => {
  assert.equal(members(IS_TOKEN), sorted(`${letters}${letters.toLowerCase()}${digits}!#$%&'*+-.^_\`|~`));
});

test('a field value takes no control character but the tab', () => {
  for (let byte = 0; byte < 256; byte++) {
    const isControl = byte < 32 || byte === 127;
    assert.equal(IS_VALUE[byte], isControl && byte !== 9 ? 0 : 1, `byte ${byte}`);
  }
});

test('a target takes visible ASCII but no fragment', () => {
  const visible = String.fromCharCode(...Array.from({ length: 94 }, (_, i) => i + 33));
  assert.equal(members(IS_TARGET), visible.replace('#', ''));
});

test('a host takes neither user info, path, query nor anything but ASCII', () => {
  for (const char of '@/?#:[]\\"<>^`{|} \t\r\n\0\x7f\x80\xff') assert.equal(IS_HOST[char.charCodeAt(0)], 0, char);
  for (const char of 'azAZ09.-_~%') assert.equal(IS_HOST[char.charCodeAt(0)], 1, char);
});

test('every byte has its value as a hex digit, or 255', () => {
  for (let byte = 0; byte < 256; byte++) {
    const value = Number.parseInt(String.fromCharCode(byte), 16);
    assert.equal(HEX_VALUE[byte], Number.isNaN(value) ? 255 : value, `byte ${byte}`);
  }
});
