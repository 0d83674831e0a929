import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { startGateway } from './gateway.ts';

const workerUrls = ['http://127.0.0.1:7001', 'http://127.0.0.1:7002'];

test('engines get no key of the router, no second key beside their own, and nothing else that the router itself does not pass on', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls, apiKey: ['data-key'], adminApiKey: ['admin-key'] });
  const changesOf = async (headers: Record<string, string>, path?: string): Promise<[string[], string[]]> => {
    const processed = ask({ headers, ...(path === undefined ? {} : { path, method: 'GET' }) });
    const { setHeaders, removeHeaders = [] } = (await processed.next()).requestHeaders!.response.headerMutation!;
    await processed.respond();
    await processed.end();
    return [setHeaders.map(({ header }) => header.key).slice(1), [...removeHeaders].sort()];
  };
  const data = { authorization: 'Bearer data-key' };
  deepEqual(await changesOf(data), [[], ['authorization']]);
  deepEqual(await changesOf({ 'x-api-key': 'admin-key' }), [[], ['x-api-key']]);
  deepEqual(await changesOf({ ...data, 'x-api-key': 'of the engine' }), [[], ['authorization']]);
  deepEqual(await changesOf({ ...data, 'x-request-id': 'two words' }), [[], ['authorization', 'x-request-id']]);
  const at = workerUrls[0]!;
  deepEqual(await changesOf({ ...data, 'x-turnout-worker': at }, '/v1/models'), [
    [],
    ['authorization', 'x-turnout-worker'],
  ]);
  for (const worker of router.fleet.workers) worker.key = { authorization: 'Bearer worker-key' };
  deepEqual(await changesOf({ ...data, 'x-api-key': 'mine' }), [['authorization'], ['x-api-key']]);
});
