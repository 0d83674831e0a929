import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { state } from '../feed/connection.ts';
import { knowsOpenSessions } from './unknown-sessions.ts';

test('which sessions have ended is known only if each open one has a row', () => {
  const knows = (sessions: number | null, unlisted: number): boolean => {
    state.totals.value = { ...state.totals.value, sessions, unlisted_sessions: unlisted };
    return knowsOpenSessions();
  };
  deepEqual([knows(10_000, 0), knows(12_000, 2_000), knows(null, 0)], [true, false, false]);
});
