import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../exchange.ts';
import { EventLine, MAX_HELD_BYTES } from './event-line.ts';
import type { PayloadOut } from './payload-out.ts';

test('an event beyond the limit fails the plugins that would have to see it, once', () => {
  const failures: unknown[] = [];
  const line = new EventLine({
    x: {} as Exchange,
    plugins: [{ name: 'looks', responseEvent: (_x, event) => event }],
    out: {} as PayloadOut,
    onFailure: (_plugin, error) => failures.push(error),
    isWanted: () => failures.length === 0,
    onBusy: () => {},
    onWait: () => {},
    finish: (event) => event,
    onIdle: () => {},
  });
  const part = Buffer.alloc(16_777_216, 'x');
  for (let bytes = 0; bytes < MAX_HELD_BYTES; bytes += part.length) line.push(part, 0, part.length);
  assert.deepEqual(failures, []);
  line.push(part, 0, 1);
  line.push(part, 0, 1);
  assert.deepEqual(failures, ['an event of the answer is too large to be held']);
});
