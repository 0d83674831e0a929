import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { EventSplitter } from './events.ts';

test('events are found wherever the text is divided', () => {
  const text = 'data: {"a":1}\n\ndata: {"b":"x y"}\n\n';
  for (let at = 0; at <= text.length; at++) {
    const events = new EventSplitter();
    deepEqual([...events.push(text.slice(0, at)), ...events.push(text.slice(at))], ['{"a":1}', '{"b":"x y"}'], `${at}`);
  }
});

test('the beginning of an event waits for the rest', () => {
  const events = new EventSplitter();
  deepEqual(events.push('data: 1\n\ndata: 2\n'), ['1']);
  deepEqual(events.push('\n'), ['2']);
});
