import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';
import { readWorkerUrl, readWorkerUrls } from './worker-url.ts';

function read(text: string): Record<string, unknown> {
  const address = readWorkerUrl(text, null);
  if (typeof address === 'string') return assert.fail(address);
  const { url, rank, authority, basePath, endpoint } = address;
  return { url, rank, authority, basePath, host: endpoint.host, port: endpoint.port };
}

function refusalOf(text: string): string {
  const refusal = readWorkerUrl(text, null);
  return typeof refusal === 'string' ? refusal : assert.fail(`${text} was taken`);
}

const plain = { url: 'http://host:8000', rank: null, authority: 'host:8000', basePath: '', host: 'host', port: 8000 };

test('a URL is read to its endpoint, with or without its scheme and a slash at its end', () => {
  for (const text of ['http://host:8000', 'host:8000', ' http://host:8000/ ', 'http://host:8000//']) {
    assert.deepEqual(read(text), plain, text);
  }
  assert.deepEqual(read('http://host'), { ...plain, url: 'http://host', authority: 'host', port: 80 });
  const v6 = { url: 'http://[::1]:9/base', rank: null, authority: '[::1]:9', basePath: '/base', host: '::1', port: 9 };
  assert.deepEqual(read('http://[::1]:9/base/'), v6);
});

test('a URL with characters that a header can not have is refused', () => {
  for (const end of ['/a\r\nset-cookie: x', '00\n0', '/\ta', '/a b', '/\u010a', '/é', '/\0', '/\x7f'])
    assert.match(refusalOf(`http://host:80${end}`), /only visible ASCII characters/, end);
  assert.match(refusalOf('http://bücher:80'), /only visible ASCII characters.*xn--/);
  // Which would be 169.254.169.254.
  assert.match(refusalOf('http://①⑥⑨.254.169.254'), /only visible ASCII characters/);
  assert.equal(read('http://host:80/%0A')['basePath'], '/%0A');
});

test('a number behind an @ is a data-parallel rank: another worker, the same endpoint', () => {
  const ranked = { ...plain, url: 'http://host:8000@3', rank: 3 };
  for (const text of [
    'http://host:8000@3',
    'host:8000@3',
    'http://host:8000/@3',
    'http://host:8000@3/',
    'host:8000@03',
  ]) {
    assert.deepEqual(read(text), ranked, text);
  }
  assert.deepEqual(read('http://host:8000@0'), { ...plain, url: 'http://host:8000@0', rank: 0 });
  const v6 = { url: 'http://[::1]:9/base@12', rank: 12, authority: '[::1]:9', basePath: '/base', host: '::1', port: 9 };
  assert.deepEqual(read('http://[::1]:9/base@12'), v6);
});

test('what is no rank is no user name either, and says so', () => {
  for (const text of [
    'http://host:8000@x',
    'http://host:8000@-1',
    'http://host:8000@1.5',
    'http://user:word@host:8000',
  ]) {
    assert.match(refusalOf(text), /must not carry a user name.*http:\/\/host:port@3/, text);
  }
  assert.match(refusalOf('http://user:word@host:8000@3'), /must not carry a user name/);
});

test('a range names each rank in it, and an engine that is known to have several has each of them', () => {
  const urlsOf = (text: string, ranksEach = 1) => {
    const addresses = readWorkerUrls(text, null, null, ranksEach);
    return typeof addresses === 'string' ? addresses : addresses.map(({ url }) => url);
  };
  assert.deepEqual(urlsOf('host:8000@4-6'), ['http://host:8000@4', 'http://host:8000@5', 'http://host:8000@6']);
  assert.deepEqual(urlsOf('http://host:8000@4-4/'), ['http://host:8000@4']);
  assert.deepEqual(urlsOf('host:8000', 2), ['http://host:8000@0', 'http://host:8000@1']);
  assert.deepEqual(urlsOf('host:8000@3', 2), ['http://host:8000@3']);
  assert.deepEqual(urlsOf('host:8000@6-7', 4), ['http://host:8000@6', 'http://host:8000@7']);
  for (const text of ['host:8000@5-4', 'host:8000@0-1024'])
    assert.match(urlsOf(text) as string, /not a range of at most 1024 ranks/);
  assert.match(refusalOf('http://host:8000@4-7'), /names 4 ranks/);
});

test('a URL without a rank means all ranks of its engine', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const first = fleet.add('h:1@0-2') as Worker;
  assert.equal(first.rank, 0);
  assert.equal(fleet.add('http://h:1@0'), first);
  fleet.add('h:2');
  assert.deepEqual(
    ['h:1', 'h:1@1-7', 'h:2', 'h:2@0', 'h:3', 'ftp://h'].map((url) => fleet.named(url).map((worker) => worker.url)),
    [['http://h:1@0', 'http://h:1@1', 'http://h:1@2'], ['http://h:1@1', 'http://h:1@2'], ['http://h:2'], [], [], []],
  );
  assert.ok(fleet.workers.every(({ engineUrl, rank }) => rank === null || engineUrl === 'http://h:1'));
});

test('ranks of one engine are workers of their own; the same rank is the same worker', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const urls = ['http://h:1', 'http://h:1@0', 'http://h:1@1', 'http://h:1@01', 'http://h:1/@0'];
  const workers = urls.map((url) => fleet.add(url) as Worker);
  assert.equal(new Set(workers).size, 3);
  assert.deepEqual(
    fleet.workers.map(({ url, rank, slot }) => [url, rank, slot]),
    [
      ['http://h:1', null, 0],
      ['http://h:1@0', 0, 1],
      ['http://h:1@1', 1, 2],
    ],
  );
  assert.equal(fleet.get('h:1@1'), workers[2]);
});
