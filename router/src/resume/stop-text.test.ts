import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { StopText, endOf } from './stop-text.ts';

/** What goes out of texts that come one after the other. */
function sent(watch: StopText, texts: readonly string[]): { text: string; stop: string | null } {
  let all = '';
  for (const [i, text] of texts.entries()) {
    const { text: released, stop } = watch.push(text, i === texts.length - 1, false);
    all += released;
    if (stop !== null) return { text: all, stop };
  }
  return { text: all, stop: null };
}

test('text that may become part of a stop string is kept back until it is known', () => {
  const watch = new StopText(['END'], true, 'before');
  assert.deepEqual(watch.push('abcE', false, false), { text: 'ab', stop: null });
  assert.deepEqual(watch.push('N', false, false), { text: 'c', stop: null });
  assert.deepEqual(watch.push('D!', true, true), { text: '', stop: 'END' });
});

test('a stop string is found that begins in an earlier part; one within a part is its engine’s to find', () => {
  const watch = new StopText(['END'], false, 'before');
  assert.deepEqual(watch.push('END abE', false, false), { text: 'END abE', stop: null });
  watch.seam();
  assert.deepEqual(watch.push('N', false, false), { text: 'N', stop: null });
  assert.deepEqual(watch.push('D!', false, false), { text: '', stop: 'END' });
});

test('a stop string that is shown ends the text, or not even that', () => {
  for (const [end, text] of [
    ['before', ''],
    ['with', 'D'],
    ['all', 'D!'],
  ] as const) {
    const watch = new StopText(['END'], false, end);
    watch.push('EN', false, false);
    watch.seam();
    assert.deepEqual(watch.push('D!', false, false), { text, stop: 'END' });
  }
  assert.equal(endOf('an END, END', 'END', 6, 'before'), 8);
});

test('whatever the pieces, all text goes out, in whole characters', () => {
  const pieces = fc.array(fc.string({ unit: 'grapheme', maxLength: 5 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(pieces, fc.boolean(), (texts, keepsBack) => {
      const watch = new StopText(['\u0000stop\u0000'], keepsBack, 'before');
      const parts = texts.map((text, i) => watch.push(text, i === texts.length - 1, false).text);
      assert.equal(parts.join(''), texts.join(''));
      assert.ok(parts.every((part) => part.isWellFormed()));
    }),
  );
});

test('a stop string over a seam ends the text there, wherever the pieces begin', () => {
  const letters = fc.stringMatching(/^[ab]{0,12}$/);
  fc.assert(
    fc.property(letters, letters, fc.integer({ min: 1, max: 3 }), (before, after, from) => {
      const stop = 'XYZW';
      const watch = new StopText([stop], true, 'before');
      const first = watch.push(before + stop.slice(0, from), false, false).text;
      watch.seam();
      const rest = sent(watch, [...(stop.slice(from) + after)]);
      assert.deepEqual({ text: first + rest.text, stop: rest.stop }, { text: before, stop });
    }),
  );
});
