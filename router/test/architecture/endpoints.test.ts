import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SmartRouter } from 'hono/router/smart-router';
import { endpoints, openApi } from '../../src/admin/endpoints.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

/** An endpoint, whatever its parameters are called. */
const named = (method: string, path: string): string =>
  `${method.toUpperCase()} ${path.replace(/:\w+(\{[^}]*\})?|\{\w+\}/g, '{}')}`;
const listed = new Set(endpoints.map(({ method, path }) => named(method, path)));

test('every listed endpoint is answered by the router, and needs the key that the list says; no other has a route', async (t) => {
  const added = t.mock.method(SmartRouter.prototype, 'add');
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const keys = { apiKey: ['data-key'], adminApiKey: ['admin-key'] };
  const router = await startTestRouter(t, {
    ...keys,
    tokenizerPath,
    plugin: ['radix-tree', 'chat-sessions', 'feed'],
    tinker: true,
    swapSnapshots: '/snapshots/{identity}',
  });
  const routes = new Set(added.mock.calls.map(({ arguments: [method, path] }) => named(method, path)));
  assert.ok(routes.size > 60, [...routes].join());
  assert.deepEqual(
    [...routes].filter((route) => !listed.has(route)),
    ['ALL /api/v1/{}'],
    'one that is not listed, and the answer to Tinker calls that are unknown',
  );
  for (const { method, path, caller } of endpoints) {
    const filled = path.replace(/\{\w+\}/, '00000000-0000-0000-0000-000000000000');
    const url = router.url + (path === '/feed' ? '/feed?wait_secs=0' : filled);
    const status = async (key: string | null) => {
      const headers = key === null ? {} : { authorization: `Bearer ${key}` };
      const answer = await fetch(url, { method, headers, ...(method === 'GET' ? {} : { body: '{"timeout_secs":0}' }) });
      // The response may be a stream that does not end.
      await answer.body?.cancel();
      return answer.status;
    };
    const name = `${method} ${path}`;
    const allowed = (code: number): boolean => code !== 401 && code !== 403;
    assert.equal(allowed(await status(null)), caller === 'everyone', `${name} without a key`);
    assert.equal(allowed(await status('data-key')), caller !== 'admins', `${name} with a data key`);
    const admin = await status('admin-key');
    // The fleet has no workers: what is not an endpoint of the router is 503.
    assert.ok(allowed(admin) && admin !== 405 && (admin !== 503 || path === '/readiness'), `${name}: ${admin}`);
  }
});

test('every route that the source spells out is listed, also of what is off', async (t) => {
  const router = await startTestRouter(t);
  const document: unknown = await (await fetch(`${router.url}/openapi.json`)).json();
  assert.deepEqual(document, JSON.parse(JSON.stringify(openApi())));
  const source = join(import.meta.dirname, '../../src');
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /^(admin|plugins|swap|tinker|recorder)\/.*(?<!\.test)\.ts$/.test(file),
  );
  const routes = files.flatMap((file) =>
    [...readFileSync(join(source, file), 'utf8').matchAll(/\.(get|post|put|patch|delete)\(\s*'(\/[^']+)'/g)].map(
      ([, method, path]) => named(method!, `${file.startsWith('tinker') ? '/api/v1' : ''}${path}`),
    ),
  );
  assert.ok(routes.length > 25, routes.join());
  assert.deepEqual(
    routes.filter((route) => !listed.has(route)),
    [],
  );
});
