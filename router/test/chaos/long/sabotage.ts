import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import type { Router } from '../../../src/router.ts';
import { BufferSink } from '../../../src/wire/buffer-sink.ts';
import { RequestBody, RetryBudget } from '../../../src/wire/request-body.ts';

/** What is done to a router on purpose, and the words of the complaint that must follow: a check that can't fail is none. */
export const sabotages = {
  'swallow a request': /lost: the client got neither/,
  'close without an answer': /lost: the connection was closed without an answer/,
  'send a request twice': /duplicated: executed twice at once|duplicated: reached an engine after/,
  'answer twice': /duplicated: bytes after its answer|duplicated: a client without a request/,
  'change a byte': /wrong: /,
  'end a cut answer cleanly': /wrong: a (?:truncated|cut) answer looks complete/,
  'cut a whole answer': /lost: cut, although/,
  'leak a socket': /leaked: TCPSocketWrap/,
  'leak a timer': /leaked: Timeout/,
  'leak a count': /leaked: .*in flight/,
  'leak memory': /memory grows: heapUsed/,
  'leak memory that V8 does not count': /memory grows: resident/,
  'block the loop': /the loop is late/,
} as const;
export type Sabotage = keyof typeof sabotages;

/** Every so many requests; not so many that nothing else is seen. */
const EVERY = 50;
/** What is spoilt before the run has begun would be taken for normal. */
const WARM_UP = 60;

export function sabotage(router: Router, what: Sabotage): void {
  const { pipeline, fleet } = router;
  const dispatch = pipeline.dispatch.bind(pipeline);
  const kept: unknown[] = [];
  // Whoever connects to it hears nothing and is never sent away.
  const silent = what === 'leak a socket' ? createServer().listen(0, '127.0.0.1') : null;
  let count = 0;
  if (what === 'block the loop') {
    setInterval(() => {
      for (const until = performance.now() + 80; performance.now() < until;);
    }, 400);
  }
  pipeline.dispatch = (head, body, sink) => {
    if (what === 'leak memory') kept.push(Buffer.alloc(8192, 1));
    if (what === 'leak memory that V8 does not count') kept.push(Buffer.from(new SharedArrayBuffer(131_072)).fill(1));
    if (++count <= WARM_UP || count % EVERY !== 0 || head.method !== 'POST') return dispatch(head, body, sink);
    if (what === 'swallow a request') return dispatch(head, body, new BufferSink());
    if (silent !== null) kept.push(connect((silent.address() as AddressInfo).port, '127.0.0.1'));
    if (what === 'leak a timer') kept.push(setInterval(() => {}, 60_000));
    if (what === 'leak a count' && fleet.workers.length > 0) fleet.begin(fleet.workers[0]!);
    if (what === 'send a request twice') {
      body.whenComplete((whole) => {
        const copy = new RequestBody(new RetryBudget(1e9), () => {});
        copy.push(Buffer.from(whole.join()));
        copy.isComplete = true;
        dispatch(head, copy, new BufferSink());
      });
    }
    const socket = 'socket' in sink ? (sink.socket as Socket) : null;
    const { body: onBody, end, cut } = sink;
    if (what === 'close without an answer') {
      sink.head = () => socket?.destroy();
      sink.body = () => {};
    }
    if (what === 'answer twice') {
      sink.end = () => {
        end.call(sink);
        socket?.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
      };
    }
    if (what === 'change a byte') {
      sink.body = (bytes, from, to) => {
        const text = Buffer.from(bytes.subarray(from, to)).toString('latin1').replace(';', '!');
        onBody.call(sink, Buffer.from(text, 'latin1'), 0, to - from);
      };
    }
    if (what === 'cut a whole answer') {
      sink.end = () => {
        cut.call(sink, 'sabotage', '');
      };
    }
    if (what === 'end a cut answer cleanly') sink.cut = () => socket?.end('0\r\n\r\n');
    return dispatch(head, body, sink);
  };
}
