import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cors } from '../../src/admit/cors.ts';
import type { Exchange } from '../../src/exchange.ts';
import { listeningSink } from '../../src/phases/listening-sink.ts';
import { responseSink } from '../../src/phases/response-sink.ts';
import type { Plugin } from '../../src/plugin.ts';
import { ResumeSink } from '../../src/resume/resume-sink.ts';
import { KeepAliveSink } from '../../src/rollout-fields/keep-alive.ts';
import { RequestHead } from '../../src/wire/request-head.ts';
import { type ResponseHead, ownHead } from '../../src/wire/response-head.ts';
import type { Sink, Source } from '../../src/wire/sink.ts';

/** Notes what arrives. */
class LastSink implements Sink {
  readonly takesFraming: boolean;
  readonly payloadObserver = (): void => {};
  source: Source | null = null;
  hasUnsent = false;
  hasRoom = true;
  isTaken = true;
  readonly calls: string[] = [];
  /** Of `makeReady` and `whenPassed`. */
  done: () => void = () => {};

  constructor(takesFraming: boolean) {
    this.takesFraming = takesFraming;
  }

  head({ status }: ResponseHead): void {
    this.calls.push(`head ${status}`);
  }

  body(bytes: Buffer, start: number, end: number): void {
    this.calls.push(`body ${bytes.toString('latin1', start, end)}`);
  }

  flush(): boolean {
    this.calls.push('flush');
    return this.hasRoom;
  }

  makeReady(done: () => void): void {
    this.calls.push('makeReady');
    this.done = done;
  }

  whenPassed(done: () => void): void {
    this.calls.push('whenPassed');
    this.done = done;
  }

  end(): void {
    this.calls.push('end');
  }

  takeBack(): boolean {
    this.calls.push('takeBack');
    return this.isTaken;
  }

  cut(reason: string, finalEvent: string): void {
    this.calls.push(`cut ${reason} ${finalEvent}`);
  }
}

const head = (): ResponseHead => ownHead(200, 'OK', 'content-type: text/plain\r\n', 2);
const bytes = Buffer.from('[ab]');

/** What each member of a sink has to do in the sink behind it, at the beginning or after the response's head. */
const claims: Record<keyof Sink, (sink: Sink, last: LastSink) => void> = {
  takesFraming(sink, last) {
    // A sink whose source may change the payload takes none of its framing.
    assert.ok(!sink.takesFraming || last.takesFraming);
  },
  payloadObserver(sink, last) {
    // Its own or that of the sink behind it.
    if (sink.takesFraming) assert.ok(sink.payloadObserver !== null && last.payloadObserver !== null);
  },
  source(sink, last) {
    const source = { resume: () => {} };
    sink.source = source;
    assert.equal(last.source, source);
    assert.equal(sink.source, source);
  },
  hasUnsent(sink, last) {
    assert.equal(sink.hasUnsent, false);
    last.hasUnsent = true;
    assert.equal(sink.hasUnsent, true);
  },
  head(sink, last) {
    sink.head(head());
    assert.deepEqual(last.calls, ['head 200']);
  },
  body(sink, last) {
    sink.head(head());
    sink.body(bytes, 1, 3);
    sink.flush();
    assert.equal(last.calls.filter((call) => call.startsWith('body')).join(' '), 'body ab');
  },
  flush(sink, last) {
    sink.head(head());
    assert.equal(sink.flush(), true);
    last.hasRoom = false;
    assert.equal(sink.flush(), false);
  },
  makeReady(sink, last) {
    sink.head(head());
    let isReady = false;
    sink.makeReady(() => (isReady = true));
    assert.deepEqual([last.calls.at(-1), isReady], ['makeReady', false]);
    last.done();
    assert.equal(isReady, true);
  },
  whenPassed(sink, last) {
    sink.head(head());
    let isPassed = false;
    sink.whenPassed(() => (isPassed = true));
    assert.deepEqual([last.calls.at(-1), isPassed], ['whenPassed', false]);
    last.done();
    assert.equal(isPassed, true);
  },
  end(sink, last) {
    sink.head(head());
    sink.makeReady(() => sink.end());
    last.done();
    assert.equal(last.calls.at(-1), 'end');
  },
  takeBack(sink, last) {
    sink.head(head());
    assert.equal(sink.takeBack(), true);
    last.isTaken = false;
    assert.equal(sink.takeBack(), false);
  },
  cut(sink, last) {
    sink.head(head());
    sink.cut('reason', 'event');
    assert.equal(last.calls.at(-1), 'cut reason event');
  },
};

/** An exchange, as far as sinks read it. */
const exchangeOf = (sink: Sink): Exchange =>
  ({ sink, outcome: null, headGoesTo: () => {}, head: { method: 'POST' } }) as unknown as Exchange;

const fail = (_: Plugin, error: unknown): never => {
  throw error;
};
const observer: Plugin = { name: 'observer', observeResponse: () => ({ observe: () => {} }) };
const changer: Plugin = { name: 'changer', responseHead: () => {} };
const resumed = (sink: Sink): Sink =>
  new ResumeSink(exchangeOf(sink), sink, { generation: () => null, hasGrown: () => {}, isWhole: () => {} });
const observed = (sink: Sink): Sink => listeningSink(exchangeOf(sink), [observer], sink);
const changed = (sink: Sink): Sink => responseSink(exchangeOf(sink), [changer], fail, sink);
const keptAlive = (sink: Sink): Sink => new KeepAliveSink(sink);
const withCors = (sink: Sink): Sink => new Cors(['*']).sinkFor(new RequestHead(), sink)!;

const sinks: Readonly<Record<string, (sink: Sink) => Sink>> = {
  CORS: withCors,
  'comments of streams': keptAlive,
  'plugins that change': changed,
  'plugins that observe': observed,
  '--resume': resumed,
  'all of them': (sink) => changed(resumed(observed(changed(keptAlive(withCors(sink)))))),
};

for (const [name, wrap] of Object.entries(sinks)) {
  test(`the sink of ${name} passes everything on`, () => {
    for (const [member, claim] of Object.entries(claims)) {
      for (const takesFraming of [true, false]) {
        const last = new LastSink(takesFraming);
        try {
          claim(wrap(last), last);
        } catch (error) {
          throw new Error(`${member}: ${(error as Error).message}`, { cause: error });
        }
      }
    }
  });
}
