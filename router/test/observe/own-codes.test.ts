import { deepEqual, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { errorTable } from '../../src/kit/errors.ts';
import { startTestRouter } from '../harness/router.ts';

const calls = [
  ['GET', '/tap?bogus=1', 'bad_request'],
  ['GET', '/requests?bogus=1', 'bad_request'],
  ['GET', '/sessions?bogus=1', 'bad_request'],
  ['GET', '/explain', 'bad_request'],
  ['GET', '/explain?id=nobody', 'not_found'],
  ['POST', '/fleet/wait_idle', 'bad_request'],
  ['PUT', '/policies', 'bad_request'],
  ['DELETE', '/policies', 'bad_request'],
  ['DELETE', '/policies?model=m', 'not_found'],
  ['POST', '/swap', 'bad_request'],
  ['POST', '/swap/begin', 'bad_request'],
  ['POST', '/swap/end', 'bad_request'],
  ['DELETE', '/swap?deployment=x', 'bad_request'],
] as const;

test("the router's own endpoints name their errors as the reference does", async (t) => {
  const router = await startTestRouter(t, { swapSnapshots: '/snapshots/{identity}' });
  for (const [method, path, code] of calls) {
    const body = method === 'GET' ? {} : { body: '{"bogus":1}' };
    const response = await fetch(router.url + path, {
      method,
      headers: { 'content-type': 'application/json' },
      ...body,
    });
    const answer = (await response.json()) as { error: string; code: string };
    deepEqual([response.status, answer.code], [errorTable[code].status, code], `${method} ${path}`);
    ok(answer.error.length > 0);
  }
});
