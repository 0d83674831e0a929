import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const source = join(import.meta.dirname, '../../src');

test('nothing is timed by the clock on the wall, which may be set', () => {
  const users = readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .filter((file) => /Date\.now|new Date\b|timeOrigin/.test(readFileSync(join(source, file), 'utf8')));
  // They write down for a later process when something was last used.
  const keepers = [
    'choose/rollout/open-sessions.ts',
    'choose/session-table.ts',
    'fleet/health-watch.ts',
    'recorder/thread/feed/feed-clock.ts',
    'recorder/thread/store/expiry.ts',
    'recorder/thread/store/store-calls.ts',
  ];
  // A retry-after may be a date of the wall clock; what it asks for is bounded.
  // When a worker was checked last is shown as a date.
  // When a worker was added is told as a date, and counted by the other clock.
  // The metric process_start_time_seconds is a time of the wall clock.
  // Turns say when they began, and can be asked for by that; nothing is timed by it.
  const trajectories = [
    'recorder/tap/routes.ts',
    'cli/export.ts',
    'recorder/thread/capture/experts-files.ts',
    // How long ago a turn of an earlier process was used: from then on the other clock counts.
    'recorder/thread/capture/restore.ts',
    'recorder/thread/capture/turn-id.ts',
    'recorder/shared/turn.ts',
  ];
  // The dashboard, the tap, explanations and spans show when something happened.
  const shown = [
    'admin/dashboard/feed.ts',
    'admin/dashboard/session-rows.ts',
    'admin/dashboard/fleet-rows.ts',
    'admin/explain.ts',
    'assembly/own.ts',
    'cli/explain.ts',
    'cli/tap.ts',
    'observe/exchange-rows.ts',
    'observe/history.ts',
    'observe/trace/tracing.ts',
  ];
  assert.deepEqual(
    users.toSorted(),
    [
      ...shown,
      'admin/workers/describe.ts',
      ...keepers,
      'forward/failover.ts',
      'observe/metrics/process.ts',
      ...trajectories,
      // Chat templates may have the date in their prompts.
      'recorder/thread/jinja/template.ts',
      // The Lease of a leader says to others when it was renewed; whether it has expired is counted by the other clock.
      'picker/leader.ts',
      // The ledger of swaps has dates. How long ago a swap of an earlier process started: from then on the other clock counts.
      'swap/api.ts',
      'swap/hot-load/routes.ts',
      'swap/ledger.ts',
      'swap/worker-set.ts',
      // A part of the ids of samples, which tells two starts of the router apart.
      'tinker/futures.ts',
      // How old a file of an earlier process is.
      'tinker/kept-samples.ts',
    ].toSorted(),
  );
});
