import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LiveConfig } from './live.ts';
import { loadConfig } from './load.ts';

const configOf = (flags: Parameters<typeof loadConfig>[0] = {}) => loadConfig(flags, {}, undefined);

test('a room that keeps its options object reads the new values', async () => {
  const live = new LiveConfig(configOf());
  const options = live.of(({ retryMaxRetries, connectTimeoutMs }) => ({ retryMaxRetries, connectTimeoutMs }));
  const change = await live.change(configOf({ retryMaxRetries: 7 }));
  assert.deepEqual(options, { retryMaxRetries: 7, connectTimeoutMs: 5_000 });
  assert.deepEqual(change, { changed: ['--retry-max-retries'], ignored: [] });
  assert.equal(live.current.retryMaxRetries, 7);
});

test('what takes a restart keeps its value and is named, each time', async () => {
  const live = new LiveConfig(configOf({ port: 1, dataDir: 'a', tlsCertPath: 'c', tlsKeyPath: 'k' }));
  const next = configOf({ port: 2, host: '::1', queueSize: 1 });
  const ignored = ['--host', '--port', '--data-dir', '--tls-cert-path', '--tls-key-path'];
  assert.deepEqual(await live.change(next), { changed: ['--queue-size'], ignored });
  assert.deepEqual([live.current.port, live.current.dataDir, live.current.tlsCertPath], [1, 'a', 'c']);
  assert.deepEqual(await live.change(next), { changed: [], ignored });
});

test('another certificate is no other kind of server', async () => {
  const live = new LiveConfig(configOf({ tlsCertPath: 'c', tlsKeyPath: 'k' }));
  const { changed } = await live.change(configOf({ tlsCertPath: 'd', tlsKeyPath: 'k' }));
  assert.deepEqual(changed, ['--tls-cert-path']);
  assert.equal(live.current.tlsCertPath, 'd');
});

test('an option that is not given any more goes back to its default', async () => {
  const live = new LiveConfig(configOf({ healthCheckEndpoint: '/f', workerUrls: ['http://a:1'] }));
  const { changed } = await live.change(configOf());
  assert.deepEqual(changed, ['--worker-urls', '--health-check-endpoint']);
  assert.deepEqual([live.current.healthCheckEndpoint, live.current.workerUrls], ['/health', []]);
});

test('all or nothing: one preparation that fails leaves everything as it was', async () => {
  const live = new LiveConfig(configOf());
  const options = live.of(({ queueSize }) => ({ queueSize }));
  const done: string[] = [];
  live.beforeChange(() => () => done.push('first'));
  live.beforeChange(({ queueSize }) => {
    if (queueSize === 1) throw new Error('not that');
    return null;
  });
  live.beforeChange(async () => {
    await new Promise(setImmediate);
    return () => done.push('last');
  });
  await assert.rejects(live.change(configOf({ queueSize: 1 })), /not that/);
  assert.deepEqual([options.queueSize, live.current.queueSize, done], [100, 100, []]);
  await live.change(configOf({ queueSize: 2 }));
  assert.deepEqual([options.queueSize, done], [2, ['first', 'last']]);
});

test('preparations see both, are made also when nothing changed, and one change waits for the other', async () => {
  const live = new LiveConfig(configOf());
  const seen: number[][] = [];
  live.beforeChange(async (next, now) => {
    await new Promise(setImmediate);
    seen.push([now.queueSize, next.queueSize]);
    return null;
  });
  await Promise.all([1, 2, 2].map((queueSize) => live.change(configOf({ queueSize }))));
  assert.deepEqual(seen, [
    [100, 1],
    [1, 2],
    [2, 2],
  ]);
});
