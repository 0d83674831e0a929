import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../config/load.ts';
import type { Config } from '../../config/options.ts';
import { eventEndpoints } from './event-endpoints.ts';

const endpointsOf = (options: Partial<Config> = {}): ReturnType<typeof eventEndpoints> =>
  eventEndpoints({ ...loadConfig({}, {}, undefined), ...options });

test('by itself it is the port of vLLM and SGLang at the worker’s host, without a replay', () => {
  const of = endpointsOf();
  assert.deepEqual(of('http://gpu-1:8000'), { endpoint: 'tcp://gpu-1:5557', replayEndpoint: null });
  assert.deepEqual(of('https://[::1]:8000/engine').endpoint, 'tcp://[::1]:5557');
});

test('a DP rank is added to both ports', () => {
  const of = endpointsOf({ kvEventPort: 6_000, kvReplayPort: 6_100 });
  assert.deepEqual(of('http://gpu-1:8000'), { endpoint: 'tcp://gpu-1:6000', replayEndpoint: 'tcp://gpu-1:6100' });
  assert.deepEqual(of('http://gpu-1:8000@3'), { endpoint: 'tcp://gpu-1:6003', replayEndpoint: 'tcp://gpu-1:6103' });
});

test('a list wins, with and without a replay, in any spelling of lists and URLs', () => {
  const config = loadConfig(
    {
      kvReplayPort: 9,
      kvEventEndpoints: [
        'http://a:1=tcp://a:5,replay=tcp://a:6 b:1=tcp://b:5',
        'http://c:1/=ipc:///c',
        'http://d:1@2=tcp://d:7',
      ],
    },
    {},
    undefined,
  );
  const of = eventEndpoints(config);
  assert.deepEqual(of('http://a:1'), { endpoint: 'tcp://a:5', replayEndpoint: 'tcp://a:6' });
  assert.deepEqual(of('http://b:1'), { endpoint: 'tcp://b:5', replayEndpoint: null });
  assert.deepEqual(of('http://c:1'), { endpoint: 'ipc:///c', replayEndpoint: null });
  assert.deepEqual(of('http://d:1@2'), { endpoint: 'tcp://d:7', replayEndpoint: null });
  assert.deepEqual(of('http://e:1'), { endpoint: 'tcp://e:5557', replayEndpoint: 'tcp://e:9' });
});

test('what can’t be read is explained', () => {
  const entries = ['tcp://a:5', 'replay=tcp://a:6', 'http://a:1=http://a:5', 'ftp://a=tcp://a:5', 'http://a:1='];
  for (const entry of entries) {
    assert.throws(
      () => endpointsOf({ kvEventEndpoints: [entry] }),
      /--kv-event-endpoints: .* give http:\/\/worker:port=/,
    );
  }
});
