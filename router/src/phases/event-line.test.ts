import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../exchange.ts';
import { Changes } from './changes.ts';
import { EventLine, MAX_HELD_BYTES } from './event-line.ts';

test('an event beyond the limit fails the plugins that would have to see it, once', () => {
  const failures: unknown[] = [];
  const line = new EventLine({
    changes: new Changes({} as Exchange, [], () => failures.length === 0, assert.fail),
    onTooLarge: () => failures.push('too large'),
    onBusy: () => {},
    onWait: () => {},
    put: () => {},
    onIdle: () => {},
  });
  const part = Buffer.alloc(16_777_216, 'x');
  for (let bytes = 0; bytes < MAX_HELD_BYTES; bytes += part.length) line.push(part, 0, part.length);
  assert.deepEqual(failures, []);
  line.push(part, 0, 1);
  line.push(part, 0, 1);
  assert.deepEqual(failures, ['too large']);
});
