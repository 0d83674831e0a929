import { deepEqual, equal, ok, throws } from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { policies } from '../../router/src/choose/built-in-policies.ts';
import type { Fleet } from '../../router/src/fleet/fleet.ts';
import type { Policy, Worker } from '../../router/src/index.ts';
import { exchangeOf, fleetOf, policyContext } from '../../router/test/harness/policy.ts';
import canary from './canary.ts';

function startCanary(share: string): { policy: Policy; fleet: Fleet; canaries: Worker[] } {
  const { fleet } = fleetOf('http://a:1', 'http://b:1', 'http://c:1');
  const canaries = ['http://d:1', 'http://e:1'].map((url) => fleet.add(url, { labels: { canary: 'true' } }) as Worker);
  const context = policyContext(fleet);
  process.env['CANARY_SHARE'] = share;
  try {
    const policy = canary({ ...context, builtIn: (name) => policies[name](context) });
    return { policy, fleet, canaries };
  } finally {
    delete process.env['CANARY_SHARE'];
  }
}

const sessions = Array.from({ length: 2_000 }, (_, i) => `session ${i}`);
const place = (policy: Policy, fleet: Fleet, session: string): Worker => {
  const choice = policy.choose(exchangeOf({ session }), fleet.eligible);
  ok('legs' in choice);
  return choice.legs[0]!.worker;
};

test('the share of the sessions goes to the canaries, over both of them, and stays', () => {
  const { policy, fleet, canaries } = startCanary('0.2');
  const homes = sessions.map((session) => place(policy, fleet, session));
  const shares = canaries.map((worker) => homes.filter((home) => home === worker).length / sessions.length);
  for (const share of shares) ok(share > 0.08 && share < 0.12, String(shares));
  deepEqual(
    sessions.map((session) => place(policy, fleet, session)),
    homes,
  );
});

test('a side that is down fails nobody, and has its sessions again when it is back', () => {
  const { policy, fleet, canaries } = startCanary('1');
  const homes = sessions.map((session) => place(policy, fleet, session));
  ok(homes.every((home) => canaries.includes(home)));
  for (const worker of canaries) fleet.setReason(worker, 'unhealthy', true);
  ok(sessions.every((session) => !canaries.includes(place(policy, fleet, session))));
  for (const worker of canaries) fleet.setReason(worker, 'unhealthy', false);
  ok(sessions.every((session) => canaries.includes(place(policy, fleet, session))));
});

test('a share that is none stops the start', () => {
  for (const share of ['10', '-1', 'many']) throws(() => startCanary(share), /CANARY_SHARE has to be/);
});

test('the example runs, and its numbers are right', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [join(import.meta.dirname, 'run.ts')], {
    timeout: 60_000,
  });
  equal(/, 0 turns away from their session's worker/.test(stdout), true, stdout);
});
