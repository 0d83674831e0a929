import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import { fakeTime } from '../../test/harness/fake-time.ts';
import { exchangeOf, fleetOfSize } from '../../test/harness/policy.ts';
import { standStill } from '../../test/harness/stand-still.ts';
import { Exchange } from '../exchange.ts';
import type { PluginPhases } from '../plugin.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import type { ResultListener } from '../wire/result.ts';
import type { Sink } from '../wire/sink.ts';
import { ResponseHead } from '../wire/response-head.ts';
import { BufferSink } from '../wire/buffer-sink.ts';
import type { ExchangeView } from './exchange-view.ts';
import { guardPlugin } from './guard.ts';
import { listeningSink } from './listening-sink.ts';

const x = exchangeOf();
const { workers } = fleetOfSize(2);
const BODY = Buffer.from('body');

/** A guarded plugin and its faults: phase, message, count. */
function guarded(phases: PluginPhases, timeoutMs = 5_000) {
  const faults: [string, string, number][] = [];
  const plugin = guardPlugin('mine', phases, { timeoutMs }, (name, phase, error, count) => {
    assert.equal(name, 'mine');
    faults.push([phase, (error as Error).message, count]);
  });
  return { plugin, faults };
}

test('a plugin has the phases that it had, and no other', () => {
  class Mine {
    readonly #said = 'x';
    finished(): string {
      return this.#said;
    }
    requestBody(): Buffer {
      return Buffer.from(this.#said);
    }
  }
  const { plugin } = guarded(new Mine());
  assert.deepEqual(Object.keys(plugin).toSorted(), ['finished', 'name', 'requestBody']);
  assert.deepEqual(plugin.requestBody!(x, BODY, workers[0]!), Buffer.from('x'));
});

test('a result of another type is a fault, whatever its declared type', async () => {
  const wrong = (answer: unknown) => (() => answer) as never;
  const { plugin, faults } = guarded({
    admit: wrong({ status: 200, message: 'no' }),
    choose: wrong([{}]),
    requestBody: wrong('text'),
    responseHead: wrong(Promise.reject(new Error('later'))),
    responseEvent: wrong({}),
    responseBody: wrong(undefined),
    observeResponse: wrong({}),
  });
  assert.throws(() => plugin.admit!(x), /status: 400 to 599/);
  assert.throws(() => plugin.choose!(x, workers), /some of the workers/);
  assert.throws(() => plugin.requestBody!(x, BODY, workers[0]!), /a Buffer/);
  assert.throws(() => plugin.responseHead!(x, new ResponseHead()), /at once, and answered with a promise/);
  assert.throws(() => plugin.responseEvent!(x, BODY), /a Buffer/);
  assert.throws(() => plugin.responseBody!(x, BODY), /a Buffer/);
  assert.throws(() => plugin.observeResponse!(x, new ResponseHead()), /\{ observe\(bytes/);
  const phases = ['admit', 'choose', 'requestBody', 'responseHead', 'responseEvent', 'responseBody', 'observeResponse'];
  assert.deepEqual(
    faults.map(([phase, , count]) => [phase, count]),
    phases.map((phase) => [phase, 1]),
  );
  const later = guarded({ admit: wrong(Promise.resolve(1)), requestBody: wrong(Promise.resolve(null)) });
  await assert.rejects(Promise.resolve(later.plugin.admit!(x)), /status: 400 to 599/);
  await assert.rejects(Promise.resolve(later.plugin.requestBody!(x, BODY, workers[0]!)), /a Buffer/);
  assert.equal(later.faults.length, 2);
});

test('what hangs is a fault after its deadline; what comes after that is dropped', async () => {
  const late = Promise.withResolvers<Buffer>();
  const { plugin, faults } = guarded({ requestBody: () => late.promise, close: () => new Promise(() => {}) }, 20);
  await assert.rejects(
    Promise.resolve(plugin.requestBody!(x, BODY, workers[0]!)),
    /gave no answer within 20 ms \(--plugin-timeout-ms\)/,
  );
  late.reject(new Error('too late'));
  await plugin.close!();
  assert.deepEqual(
    faults.map(([phase]) => phase),
    ['requestBody', 'close'],
  );
});

test('a plugin may have a limit of its own; a stop waits no longer for it than for others', async () => {
  const late = (): Promise<Buffer> => new Promise((resolve) => setTimeout(resolve, 60, BODY));
  const { plugin, faults } = guarded({ requestBody: late, close: () => new Promise(() => {}), timeoutMs: 60_000 }, 20);
  assert.equal(await plugin.requestBody!(x, BODY, workers[0]!), BODY);
  await plugin.close!();
  assert.deepEqual(
    faults.map(([phase]) => phase),
    ['close'],
  );
});

test('a plugin that waited for a client that has gone is not to blame', async () => {
  const gone = exchangeOf();
  const { plugin, faults } = guarded({ classify: () => new Promise(() => {}) }, 20);
  const asked = Promise.resolve(plugin.classify!(gone));
  gone.outcome = 'client_left';
  await assert.rejects(asked, /no answer/);
  assert.deepEqual(faults, []);
});

test('an answer that came while the process was stopped is not late', async (t) => {
  const { port1, port2 } = new MessageChannel();
  t.after(() => port1.close());
  const answer = new Promise<void>((resolve) => {
    port1.once('message', () => resolve());
  });
  const { plugin, faults } = guarded({ classify: () => answer }, 50);
  await turn();
  const asked = plugin.classify!(exchangeOf());
  port2.postMessage(null);
  standStill(100);
  await asked;
  assert.deepEqual(faults, []);
});

/** A request whose body is still arriving. */
function uploading(): { asked: Exchange; body: RequestBody } {
  const body = new RequestBody(new RetryBudget(1e9), () => {});
  return { asked: new Exchange({} as ResultListener<Exchange>, x.head, body, {} as Sink, 0), body };
}

/** Makes a call, and says after so much time what became of it. */
function watch(t: TestContext, call: () => unknown): (ms: number) => Promise<string> {
  const time = fakeTime(t);
  let state = 'waits';
  Promise.resolve(call()).then(
    () => (state = 'done'),
    () => (state = 'failed'),
  );
  return async (ms) => {
    time.advance(ms);
    await new Promise(setImmediate);
    return state;
  };
}

const joins = ({ body }: ExchangeView): Promise<void> => new Promise((resolve) => body.whenJoined(() => resolve()));
const hangsWithBody = ({ body }: ExchangeView): Promise<null> => new Promise(() => body.whenComplete(() => {}));

test('the time of a phase does not run while it waits for the body that the client sends', async (t) => {
  const { asked, body } = uploading();
  const { plugin, faults } = guarded({ classify: joins });
  const after = watch(t, () => plugin.classify!(asked));
  assert.equal(await after(23_000), 'waits');
  body.push(BODY);
  body.finish();
  assert.equal(await after(0), 'done');
  assert.deepEqual(faults, []);
});

test('the time of a phase begins when the body that it waits for is complete', async (t) => {
  const { asked, body } = uploading();
  const { plugin, faults } = guarded({ admit: hangsWithBody });
  const after = watch(t, () => plugin.admit!(asked));
  assert.equal(await after(13_000), 'waits');
  body.finish();
  assert.equal(await after(4_999), 'waits');
  assert.equal(await after(1), 'failed');
  assert.equal(faults.length, 1);
});

test('a phase that waits for something else fails in time, also while the body arrives', async (t) => {
  const { asked } = uploading();
  const { plugin } = guarded({ admit: () => new Promise(() => {}) });
  const after = watch(t, () => plugin.admit!(asked));
  assert.equal(await after(4_999), 'waits');
  assert.equal(await after(1), 'failed');
});

for (const timeoutMs of [5_000, 600_000]) {
  test(`a phase with ${timeoutMs} ms that waits for a body holds its request for a second after its client has left`, async (t) => {
    const { asked } = uploading();
    const { plugin, faults } = guarded({ admit: hangsWithBody }, timeoutMs);
    const after = watch(t, () => plugin.admit!(asked));
    assert.equal(await after(13_000), 'waits');
    asked.outcome = 'client_left';
    assert.equal(await after(1_000), 'failed');
    assert.deepEqual(faults, []);
  });
}

test('faults of what only observes end there, and are counted', async () => {
  const fail = (): never => {
    throw new Error('on purpose');
  };
  const { plugin, faults } = guarded({ finished: fail, observeResponse: () => ({ observe: fail }) });
  plugin.finished!(x);
  plugin.finished!(x);
  const out = new BufferSink();
  const sink = listeningSink(x, [plugin], out);
  sink.head(new ResponseHead());
  for (let i = 0; i < 2; i++) sink.body(BODY, 0, 1);
  assert.equal(out.bytes, 2);
  const slow = guarded({ finished: () => Promise.reject(new Error('later')) });
  slow.plugin.finished!(x);
  await new Promise(setImmediate);
  assert.deepEqual(
    [...faults, ...slow.faults],
    [
      ['finished', 'on purpose', 1],
      ['finished', 'on purpose', 2],
      ['observeResponse', 'on purpose', 1],
      ['finished', 'later', 1],
    ],
  );
});
