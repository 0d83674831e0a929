import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../exchange.ts';
import { Futures } from './futures.ts';
import { SampleRequests, type SampleRequestsParts } from './sample-requests.ts';

const MAX_OPEN_BYTES = 1_073_741_824;

test('requests of open samples are bounded by their bytes, and by their number', async () => {
  const futures = new Futures();
  const sampling = {
    openBytes: MAX_OPEN_BYTES - 100,
    read: () => Promise.resolve({ status: 400, detail: 'read' }),
  };
  let maxOpen = 10;
  const parts = { futures, sampling, kept: null, maxOpen: () => maxOpen } as unknown as SampleRequestsParts;
  const samples = new SampleRequests(parts);
  const x = { tenant: '' } as Exchange;
  deepEqual(await samples.take(Buffer.alloc(101), x), {
    status: 429,
    detail: 'The queue is full (1 GiB of open samples): try again.',
  });
  deepEqual(await samples.take(Buffer.alloc(100), x), { status: 400, detail: 'read' }, 'what fits is read');
  maxOpen = 0;
  const refusal = await samples.take(Buffer.alloc(1), x);
  equal('detail' in refusal && refusal.detail, 'The queue is full (--tinker-max-samples): try again.');
  futures.close();
});

test('the number of open samples is one of each client', async () => {
  const futures = new Futures();
  const sampling = { openBytes: 0, read: () => Promise.resolve({ status: 400, detail: 'read' }) };
  const parts = { futures, sampling, kept: null, maxOpen: () => 1 } as unknown as SampleRequestsParts;
  const samples = new SampleRequests(parts);
  futures.issue('a');
  const statuses = ['a', 'b'].map((tenant) => samples.take(Buffer.alloc(1), { tenant } as Exchange));
  deepEqual(
    (await Promise.all(statuses)).map((refused) => 'status' in refused && refused.status),
    [429, 400],
  );
  futures.close();
});

test('requests that are read at the same time do not exceed the number together', async () => {
  const futures = new Futures();
  const isRead = Promise.withResolvers<void>();
  const sampling = {
    openBytes: 0,
    read: () => isRead.promise.then(() => ({ samplingSession: '', baseModel: 'm', modelPath: '' })),
    prepare: () => ({ problem: null, bytes: 1 }),
    begin: () => Promise.resolve(true),
  };
  const parts = { futures, sampling, kept: null, maxOpen: () => 2, problemOf: () => Promise.resolve(null) };
  const samples = new SampleRequests(parts as unknown as SampleRequestsParts);
  const taken = Array.from({ length: 5 }, () => samples.take(Buffer.alloc(1), { tenant: '' } as Exchange));
  isRead.resolve();
  const refused = (await Promise.all(taken)).filter((each) => 'status' in each);
  deepEqual([refused.map(({ status }) => status), futures.size], [[429, 429, 429], 2]);
  futures.close();
});

test('a kept sample that engines can not be asked for any more is forgotten: its client gets 410 and sends it again', async () => {
  const futures = new Futures();
  const forgotten: string[] = [];
  const sampling = {
    read: () => Promise.resolve({ samplingSession: '', baseModel: 'm', modelPath: '' }),
    prepare: () => ({ problem: 'too large' }),
  };
  futures.onOver = (id) => forgotten.push(id);
  const kept = {
    load: () => [{ id: 'turnout-1-0-000000000000000000', tenant: '', target: '' }],
    bodyOf: () => Buffer.alloc(1),
  };
  const parts = { futures, sampling, kept, problemOf: () => Promise.resolve(null) } as unknown as SampleRequestsParts;
  const samples = new SampleRequests(parts);
  samples.restore();
  equal(await samples.resume(), 0);
  deepEqual(forgotten, ['turnout-1-0-000000000000000000']);
  equal(futures.find(forgotten[0]!, '', false), 410);
  futures.close();
});

test('the start of a router does not fail with what it restores', async () => {
  const futures = new Futures();
  const ids = ['gone', 'broken'].map((_, i) => `turnout-1-${i}-000000000000000000`);
  const sampling = { read: () => Promise.reject(new Error('the thread has ended')) };
  const kept = {
    load: () => ids.map((id) => ({ id, tenant: '', target: '' })),
    bodyOf: (id: string) => (id === ids[0] ? null : Buffer.alloc(1)),
  };
  const samples = new SampleRequests({ futures, sampling, kept } as unknown as SampleRequestsParts);
  samples.restore();
  equal(await samples.resume(), 0);
  equal(futures.find(ids[0]!, '', false), 410);
  const broken = futures.find(ids[1]!, '', false);
  deepEqual(typeof broken === 'object' && broken.result, { error: 'the thread has ended', category: 'server' });
  futures.close();
});
