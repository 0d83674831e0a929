import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { GroupRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { feedText } from './trainer-feed.ts';

const member = (session: string, what: string | null) => ({ session, waits_for: what });
const row = (given: object): GroupRow =>
  ({ state: 'open', members: [], not_begun: 0, leased_to: null, ...given }) as unknown as GroupRow;

test('a group says whom it waits for, or who has it', () => {
  const members = [member('a', null), member('b', 'reward'), member('c', 'end of session'), member('d', 'reward')];
  equal(feedText(row({ members, not_begun: 2 })), 'reward: b, d; end of session: c; 2 not begun');
  equal(feedText(row({ state: 'judged' })), 'its records are read');
  equal(feedText(row({ state: 'ready' })), 'ready');
  equal(feedText(row({ state: 'ready', members: [member('a', null), member('b', 'reward')] })), 'reward: b');
  equal(feedText(row({ state: 'leased', leased_to: 'trainer-0' })), 'with trainer-0');
  equal(feedText(row({ state: 'leased', leased_to: '' })), 'with a consumer');
});
