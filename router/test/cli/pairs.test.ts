import assert from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { PairWorld } from '../harness/pairs.ts';
import { turnout } from './turnout.ts';

test('the command line of pairs: --prefill URL PORT, URL none and URL, --decode URL', async (t) => {
  const world = new PairWorld(t);
  for (let i = 0; i < 3; i++) await world.add('prefill');
  for (let i = 0; i < 2; i++) await world.add('decode');
  const { prefill, decode } = world.urls as { prefill: [string, string, string]; decode: [string, string] };
  const words = ['--prefill', prefill[0], '9001', '--prefill', prefill[1], 'none', '--prefill', prefill[2]];
  const more = ['--decode', decode[0], '--decode', decode[1], '--port', '0', '--prometheus-port', '0'];
  const run = turnout(t, [
    '--pd-disaggregation',
    ...words,
    ...more,
    '--policy',
    'round_robin',
    '--disable-health-check',
  ]);
  const [, url = ''] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  for (let i = 0; i < 6; i++) assert.equal((await send(t, url, post('/generate', { text: 'a' }))).status, 200);
  const ports = world.prefill.map(({ seen }) => seen.map((each) => each.ports[0]));
  assert.deepEqual(ports, [
    [9001, 9001],
    [null, null],
    [null, null],
  ]);
  const { text } = await send(t, url, request('GET', '/workers'));
  const { workers } = JSON.parse(text) as { workers: { worker_type: string; bootstrap_port: number | null }[] };
  assert.deepEqual(
    workers.map(({ worker_type, bootstrap_port }) => `${worker_type} ${bootstrap_port}`),
    ['prefill 9001', 'prefill null', 'prefill null', 'decode null', 'decode null'],
  );
});
