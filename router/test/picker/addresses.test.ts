import { deepEqual, equal } from 'node:assert/strict';
import dns from 'node:dns/promises';
import { syncBuiltinESMExports } from 'node:module';
import { type TestContext, test } from 'node:test';
import { stoppedClock } from '../harness/fake-time.ts';
import { until } from '../harness/within.ts';
import { destinationOf, startGateway } from './gateway.ts';

/** A name server, whose only host is the engine's, and a clock that only the test moves on. */
async function startNamed(t: TestContext) {
  const names = { address: '10.0.0.1', fails: false, lookups: 0 };
  const clock = stoppedClock(t);
  const mocked = t.mock.method(dns, 'lookup', (async () => {
    names.lookups++;
    if (names.fails) throw Object.assign(new Error('no answer'), { code: 'EAI_AGAIN' });
    return { address: names.address, family: 4 };
  }) as unknown as typeof dns.lookup);
  syncBuiltinESMExports();
  t.after(() => {
    mocked.mock.restore();
    syncBuiltinESMExports();
  });
  const { ask } = await startGateway(t, { workerUrls: ['http://vllm-0.vllm:8000'], policy: 'round_robin' });
  const pick = async (subset?: string): Promise<string | null> => {
    const processed = ask(subset === undefined ? {} : { subset });
    const endpoint = destinationOf(await processed.next());
    await processed.end();
    return endpoint;
  };
  return { names, clock, pick };
}

test('an engine that has another address after a restart is found there', async (t) => {
  const { names, clock, pick } = await startNamed(t);
  deepEqual([await pick(), await pick(), names.lookups], ['10.0.0.1:8000', '10.0.0.1:8000', 1]);
  names.address = '10.0.0.2';
  clock.pass(5_000);
  deepEqual([await pick(), await pick(), names.lookups], ['10.0.0.2:8000', '10.0.0.2:8000', 2]);
});

test('while the name server fails, an engine keeps its address', async (t) => {
  const { names, clock, pick } = await startNamed(t);
  equal(await pick(), '10.0.0.1:8000');
  names.fails = true;
  clock.pass(5_000);
  deepEqual([await pick(), await pick(), names.lookups], ['10.0.0.1:8000', '10.0.0.1:8000', 2]);
});

test('an engine with a host name is one of a subset, also after its address has changed', async (t) => {
  const { names, clock, pick } = await startNamed(t);
  await until('it is resolved', async () => (await pick('10.0.0.1')) === '10.0.0.1:8000');
  names.address = '10.0.0.2';
  clock.pass(5_000);
  await until('it is resolved again', async () => (await pick('10.0.0.2')) === '10.0.0.2:8000');
});
