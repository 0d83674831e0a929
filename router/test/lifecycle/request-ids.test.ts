import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { type Scene, startScene } from '../harness/router.ts';

const requestIdHeaders = ['X-Trace-Id', 'x-correlation-id'];
const names = ['x-request-id', 'x-trace-id', 'x-correlation-id'] as const;

/** @returns the ids that the engine got and those that the client got back. */
async function idsOf({ ask, client }: Scene, fields: readonly string[], engineSays: readonly string[] = []) {
  const asked = await ask(request('GET', '/hello', '', fields));
  asked.connection.write(answer(200, '{}', engineSays));
  const answered = await client.answer();
  const of = (head: { get(name: string): string | undefined }) => names.map((name) => head.get(name));
  return { engine: of(asked.head), client: of(answered) };
}

test('the first header that is there names the request; all go to the engine as they came', async (t) => {
  const scene = await startScene(t, { requestIdHeaders });
  const all = ['x-request-id: r', 'X-Correlation-Id: c', 'X-TRACE-ID: t'];
  deepEqual(await idsOf(scene, all), { engine: ['r', 't', 'c'], client: ['t', 't', undefined] });
  deepEqual(await idsOf(scene, all.slice(0, 2)), { engine: ['r', undefined, 'c'], client: ['c', undefined, 'c'] });
  deepEqual(await idsOf(scene, all.slice(0, 1)), {
    engine: ['r', undefined, undefined],
    client: ['r', undefined, undefined],
  });
});

test('an engine that knows x-request-id only gets the id there', async (t) => {
  const scene = await startScene(t, { requestIdHeaders });
  const { engine } = await idsOf(scene, ['x-correlation-id: c']);
  deepEqual(engine, ['c', undefined, 'c']);
});

test('without any, one is made up; it goes by the first name too', async (t) => {
  const scene = await startScene(t, { requestIdHeaders });
  const { engine, client } = await idsOf(scene, []);
  match(engine[0]!, /^req-/);
  deepEqual(engine, [engine[0], engine[0], undefined]);
  deepEqual(client, engine);
});

test('an id that is not fit for logs is passed over; the made-up one takes its line', async (t) => {
  const scene = await startScene(t, { requestIdHeaders });
  const passedOver = await idsOf(scene, [`x-trace-id: ${'t'.repeat(257)}`, 'x-correlation-id: c']);
  equal(passedOver.client[0], 'c');
  const { engine, client } = await idsOf(scene, ['x-trace-id: two words', 'x-request-id: caf\u00e9']);
  match(engine[0]!, /^req-/);
  deepEqual(engine, [engine[0], engine[0], undefined]);
  deepEqual(client, engine);
});

test('an engine that answers with the header itself is not contradicted', async (t) => {
  const scene = await startScene(t, { requestIdHeaders });
  const says = ['x-trace-id: of the engine', 'x-request-id: also'];
  deepEqual((await idsOf(scene, ['x-trace-id: t'], says)).client, ['also', 'of the engine', undefined]);
});

test('a refusal carries the id as well', async (t) => {
  const { router, client } = await startScene(t, { requestIdHeaders });
  router.fleet.remove(router.fleet.workers[0]!);
  client.write(request('GET', '/hello', '', ['x-correlation-id: c']));
  const refused = await client.answer();
  deepEqual([refused.status, refused.get('x-request-id'), refused.get('x-correlation-id')], [503, 'c', 'c']);
});

test('without the option other headers are nothing to the router', async (t) => {
  const scene = await startScene(t);
  const { engine, client } = await idsOf(scene, ['x-trace-id: t']);
  match(engine[0]!, /^req-/);
  deepEqual([engine[1], client[0], client[1]], ['t', engine[0], undefined]);
});
