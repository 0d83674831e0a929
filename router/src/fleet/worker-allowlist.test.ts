import assert from 'node:assert/strict';
import type { LookupAddress } from 'node:dns';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { readWorkerUrl } from './worker-url.ts';
import { WorkerAllowlist, fitsGlob } from './worker-allowlist.ts';

/** As the fleet asks it: of the host in a URL that was read. */
function isAllowed(allowlist: WorkerAllowlist, url: string): boolean {
  const address = readWorkerUrl(url, null);
  assert.ok(typeof address !== 'string', url);
  return allowlist.refusalOf(address.endpoint.host) === null;
}

const anywhere = new WorkerAllowlist([]);

test('by default a worker may be anywhere but at addresses that clouds trust', () => {
  for (const url of [
    '127.0.0.1:1',
    '10.1.2.3:8000',
    'gpu-7.internal:1',
    '[::1]:1',
    '[fd00::1]:1',
    '192.168.0.1',
    'localhost',
  ])
    assert.ok(isAllowed(anywhere, url), url);
  for (const host of [
    '169.254.169.254',
    '169.254.0.1',
    '169.254.169.254.',
    '2852039166',
    '0xa9fea9fe',
    '0251.0376.0251.0376',
    '169.16689662',
    '[::ffff:169.254.169.254]',
    '[::ffff:a9fe:a9fe]',
    '[::169.254.169.254]',
    '[64:ff9b::a9fe:a9fe]',
    '[2002:a9fe:a9fe::1]',
    '[fe80::1]',
    '[FEBF::1]',
    '[fd00:ec2::254]',
    '[FD00:0EC2:0:0::254]',
    '[fd20:ce::254]',
    '100.100.100.200',
    '168.63.129.16',
    'metadata.google.internal',
    'METADATA.google.internal.',
    'metadata',
  ]) {
    assert.ok(!isAllowed(anywhere, `http://${host}:80/latest`), host);
  }
});

test('--worker-allow: networks, addresses and names', () => {
  const allowlist = new WorkerAllowlist(['10.0.0.0/8', '192.168.7.7', 'fd00:1::/32', 'GPU-*.east', '172.16.*']);
  for (const url of [
    '10.255.0.1',
    '192.168.7.7',
    '[fd00:1::9]',
    'gpu-1.east',
    'gpu-1.east.',
    '172.16.3.4',
    '[::ffff:10.0.0.1]',
  ])
    assert.ok(isAllowed(allowlist, url), url);
  for (const url of ['11.0.0.1', '192.168.7.8', '[fd00:2::9]', '172.17.3.4', '127.0.0.1', '[::1]'])
    assert.ok(!isAllowed(allowlist, url), url);
});

test('with names alone, other names are refused at once; with networks, their addresses decide', () => {
  assert.ok(!isAllowed(new WorkerAllowlist(['*.east']), 'gpu.west'));
  assert.ok(isAllowed(new WorkerAllowlist(['*.east', '10.0.0.0/8']), 'gpu.west'));
  assert.ok(!isAllowed(new WorkerAllowlist(['172.16.*']), '172.16.example.com'));
});

test('a star does not open metadata addresses; naming them does', () => {
  assert.ok(isAllowed(new WorkerAllowlist(['*']), '8.8.8.8'));
  assert.ok(!isAllowed(new WorkerAllowlist(['*']), '169.254.169.254'));
  assert.ok(isAllowed(new WorkerAllowlist(['169.254.7.0/24']), '169.254.7.1'));
  assert.ok(!isAllowed(new WorkerAllowlist(['169.254.7.0/24']), '169.254.8.1'));
});

test('what is no pattern is refused in words', () => {
  for (const pattern of ['10.0.0.0/33', '10.0.0.0/x', 'http://host', 'a/8', '::1/129', 'ho st', '']) {
    assert.throws(() => new WorkerAllowlist([pattern]), /--worker-allow: ".*" is neither a network/, pattern);
  }
});

test('a name is looked up when it is connected to, and only addresses that are allowed come back', async () => {
  const find = (allowlist: WorkerAllowlist, host: string): Promise<unknown> =>
    promisify((done: (error: Error | null, found: string | LookupAddress[]) => void) =>
      allowlist.lookup(host, { all: true, family: 4 }, done),
    )();
  assert.deepEqual(await find(anywhere, 'localhost'), [{ address: '127.0.0.1', family: 4 }]);
  assert.deepEqual(await find(new WorkerAllowlist(['127.0.0.0/8']), 'localhost'), [
    { address: '127.0.0.1', family: 4 },
  ]);
  assert.deepEqual(await find(new WorkerAllowlist(['local*']), 'localhost'), [{ address: '127.0.0.1', family: 4 }]);
  await assert.rejects(find(new WorkerAllowlist(['10.0.0.0/8']), 'localhost'), { code: 'ADDRESS_NOT_ALLOWED' });
  // What a name of an attacker's leads to after it was added.
  await assert.rejects(find(anywhere, '169.254.169.254'), { code: 'ADDRESS_NOT_ALLOWED' });
});

test('a star matches any text, also none', () => {
  for (const [pattern, text, fits] of [
    ['a.b', 'a.b', true],
    ['a.b', 'axb', false],
    ['*', '', true],
    ['*.gpu.internal', 'a.gpu.internal', true],
    ['*.gpu.internal', 'a.b.gpu.internal', true],
    ['*.gpu.internal', 'gpu.internal', false],
    ['*.gpu.internal', 'a.gpu.internal.evil.com', false],
    ['node-*.east', 'node-1.east', true],
    ['a*a', 'a', false],
    ['a*b*c', 'aXbXc', true],
    ['a*bc*c', 'abc', false],
    ['a**b', 'ab', true],
  ] as const) {
    assert.equal(fitsGlob(pattern, text), fits, `${pattern} ${text}`);
  }
});
