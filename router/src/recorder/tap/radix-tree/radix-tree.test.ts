import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import type { Exchange } from '../../../exchange.ts';
import type { Worker } from '../../../fleet/worker.ts';
import type { OpenAnswer } from '../../thread/capture/capture-calls.ts';
import type { Recorder } from '../recorder.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import { stateStore } from '../../../../test/harness/policy.ts';
import { RadixTree } from './radix-tree.ts';

const WORKER = {} as Worker;

/** A plugin whose thread answers when the test says so, and so does the comparison of tokenizers. */
function scene(verify = false, isRequired = false) {
  const checked = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<OpenAnswer | null>();
  const told: unknown[] = [];
  const asked: string[] = [];
  const thread = {
    ask: (name: string) => (asked.push(name), opened.promise),
    tell: (name: string, argument: unknown) => told.push([name, argument]),
  };
  const plugin = new RadixTree(
    { forward: 'ids', completions: false, verify },
    {
      recorder: {
        thread,
        refusal: null,
        isRequired,
        versions: { begin: () => null, complete: () => {} },
      } as unknown as Recorder,
      tokenizerCheck: { check: () => checked.promise } as unknown as TokenizerCheck,
      sessionHeaders: [],
      log: pino({ level: 'silent' }),
    },
  );
  const dropped: string[] = [];
  const head = { method: 'POST', drop: (name: string) => dropped.push(name) };
  const x = {
    ...stateStore(),
    path: '/generate',
    head,
    tenant: '',
    model: '',
    outcome: null,
  } as unknown as Exchange & {
    outcome: Exchange['outcome'];
  };
  return { plugin, checked, opened, asked, told, dropped, x };
}

const ANSWER: OpenAnswer = { body: new Uint8Array(Buffer.from('{"input_ids":[1]}')), choices: 1, isText: true };

test('a client that leaves while its tokens are looked up leaves nothing open', async () => {
  const { plugin, opened, told, x } = scene();
  const body = plugin.requestBody(x, Buffer.from('{"text":"a"}'), WORKER);
  await setImmediate();
  x.outcome = 'client_left';
  plugin.finished(x);
  const before = told.length;
  opened.resolve(ANSWER);
  await body;
  // What was told before came too early: the thread had not opened it yet.
  assert.deepEqual(told.slice(before), [['dropCapture', 1]]);
});

test('its answer may not come compressed, as it has to be read', async () => {
  const { plugin, opened, dropped, told, x } = scene();
  opened.resolve(ANSWER);
  assert.equal(String(await plugin.requestBody(x, Buffer.from('{"text":"a"}'), WORKER)), '{"input_ids":[1]}');
  assert.deepEqual(dropped, ['accept-encoding']);
  assert.deepEqual(told, []);
});

test('a client that leaves while tokenizers are compared leaves nothing open', async () => {
  const { plugin, checked, opened, asked, told, x } = scene(true);
  const body = plugin.requestBody(x, Buffer.from('{"text":"a"}'), WORKER);
  opened.resolve(ANSWER);
  await setImmediate();
  x.outcome = 'client_left';
  plugin.finished(x);
  checked.resolve();
  await body;
  assert.deepEqual(asked, ['openCapture']);
  assert.deepEqual(told, [['dropCapture', 1]]);
});

test('prompts of ids wait for no comparison of tokenizers', async () => {
  const { plugin, opened, x } = scene(true);
  opened.resolve({ body: null, choices: 2, isText: false });
  for (const body of ['{"input_ids":[1]}', '{"input_ids":[[1],[2]]}']) {
    const bytes = Buffer.from(body);
    assert.equal(await plugin.requestBody(x, bytes, WORKER), bytes);
    plugin.finished(x);
  }
});

test('one sample of one prompt of ids is not looked up before it is answered, all else is', async () => {
  const isAsked = async (json: string): Promise<boolean> => {
    const { plugin, opened, asked, x } = scene();
    opened.resolve(null);
    const body = Buffer.from(json);
    assert.equal(await plugin.requestBody(x, body, WORKER), body);
    return asked.length > 0;
  };
  assert.equal(await isAsked('{"input_ids":[1,2,3]}'), false);
  assert.equal(await isAsked('{"text":"a"}'), true);
});

test('the thread has ended before the tokens are looked up: the request goes on as it is', async () => {
  const { plugin, opened, x } = scene(true);
  const body = Buffer.from('{"text":"a"}');
  const sent = plugin.requestBody(x, body, WORKER);
  opened.reject(new Error('the thread has ended'));
  assert.equal(await sent, body);
  assert.equal(plugin.failures, 1);
});

test('where captures are required, a request whose tokens can not be looked up is refused', async () => {
  const { plugin, opened, x } = scene(true, true);
  const sent = plugin.requestBody(x, Buffer.from('{"text":"a"}'), WORKER);
  opened.reject(new Error('the thread is short of memory'));
  await assert.rejects(Promise.resolve(sent), /--capture-required is set: the thread is short of memory/);
});

test('the thread ends while tokenizers are compared: the request goes on with the ids that were found', async () => {
  const { plugin, checked, opened, x } = scene(true);
  const sent = plugin.requestBody(x, Buffer.from('{"text":"a"}'), WORKER);
  opened.resolve(ANSWER);
  checked.reject(new Error('the thread has ended'));
  assert.equal(String(await sent), '{"input_ids":[1]}');
});
