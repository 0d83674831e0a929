import { deepEqual, equal, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { HELLO } from '../harness/router.ts';
import { settled, until } from '../harness/within.ts';
import { needsProc, preloaded, residentBytes, startRouterProcess } from './router-process.ts';
import { well } from './scene.ts';

/**
 * Routers in processes of their own, whose memory is theirs alone. The bounds are far above what is needed (two buffers,
 * 10 kB a connection) and far below what a router without them would hold.
 */
const MB = 1_048_576;
/** What the system itself buffers in four sockets on loopback, at its default limits, and then some. */
const SYSTEM_BUFFERS = 24 * MB;
/** What a Node process may take for itself meanwhile: compiled code, young garbage. */
const NOISE = 24 * MB;
const TOTAL = 192 * MB;
const LIMIT = 256 * MB;

/** A router process that has served some requests: what a start costs is paid. */
async function warmRouter(t: TestContext, options: readonly string[] = [], env: NodeJS.ProcessEnv = {}) {
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startRouterProcess(t, [engine.url], options, { env });
  const client = await connectClient(t, router.url);
  for (let i = 0; i < 50; i++) {
    client.write(request('POST', '/generate', 'x'.repeat(2_000)));
    equal((await client.answer()).status, 200);
  }
  engine.connections[0]!.reset();
  engine.requests.length = 0;
  engine.connections.length = 0;
  const atRest = residentBytes(router);
  return { engine, router, client, growth: () => residentBytes(router) - atRest };
}

test(
  'F11 an engine that never reads the body: the client is paused, memory stays flat',
  { skip: needsProc },
  async (t) => {
    const { engine, router, client, growth } = await warmRouter(t);
    engine.onConnection = (connection) => connection.stall();
    client.write(`POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: ${TOTAL}\r\n\r\n`);
    const part = Buffer.alloc(MB);
    let written = 0;
    const writeOn = (): void => {
      while (written < TOTAL) {
        written += part.length;
        if (!client.socket.write(part)) return;
      }
    };
    client.socket.on('drain', writeOn);
    writeOn();
    const stuckAt = await settled('what the client could write', () => written);
    ok(stuckAt < SYSTEM_BUFFERS, `the client could write ${stuckAt / MB} MB to an engine that reads nothing`);
    ok(growth() < NOISE, `the router grew by ${growth() / MB} MB`);
    equal((await send(t, router.url, request('GET', '/health'))).status, 200);
    client.reset();
    engine.connections[0]!.goOn();
    await engine.connections[0]!.untilEnded();
    await router.untilIdle();
    equal(await router.metric('turnout_retry_buffer_bytes'), 0);
  },
);

test(
  'F13 a fast engine and a client that reads 10 kB/s: the engine is paused, memory stays flat',
  { skip: needsProc },
  async (t) => {
    const { engine, router, growth } = await warmRouter(t);
    let written = 0;
    engine.onRequest = ({ connection }) => {
      const part = Buffer.alloc(MB, 'x');
      const writeOn = (): void => {
        while (written < TOTAL && connection.socket.writable) {
          written += part.length;
          if (!connection.socket.write(part)) return;
        }
      };
      connection.socket.on('drain', writeOn);
      connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${TOTAL}\r\n\r\n`);
      writeOn();
    };
    const { socket, read } = slowReader(t, router.url);
    socket.write(request('GET', '/large'));
    await until('the answer begins', () => read() > 0);
    const stuckAt = await settled('what the engine could write', () => written, 700);
    ok(stuckAt < SYSTEM_BUFFERS, `the engine could write ${stuckAt / MB} MB to a client that hardly reads`);
    ok(read() < 100_000, 'the client is slow');
    ok(growth() < NOISE, `the router grew by ${growth() / MB} MB`);
    socket.resetAndDestroy();
    await engine.connections[0]!.untilEnded();
    await router.untilIdle();
    equal(await router.metric('turnout_requests_total{outcome="client_left"}'), 1);
  },
);

/** Takes a thousand bytes every 100 ms. */
function slowReader(t: TestContext, url: string): { socket: Socket; read: () => number } {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  let read = 0;
  socket.on('readable', () => {});
  const timer = setInterval(() => {
    read += (socket.read(Math.min(1_000, socket.readableLength)) as Buffer | null)?.length ?? 0;
  }, 100);
  t.after(() => clearInterval(timer));
  t.after(() => socket.destroy());
  return { socket, read: () => read };
}

test('F42 500 MB declared: 413 at the head, before a byte of it', { skip: needsProc }, async (t) => {
  const { engine, router, client } = await warmRouter(t);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 500000000\r\n\r\n');
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error'), got.get('connection')], [413, 'payload_too_large', 'close']);
  equal(await client.untilEnded(), 'end');
  equal(engine.connections.length, 0);
  await router.untilIdle();
});

test(
  'F42 500 MB in chunks: 413 at the limit, the engine is stopped, memory is bounded',
  { skip: needsProc },
  async (t) => {
    // What may be kept for another try has a bound of its own.
    const limits = ['--max-payload-size', String(LIMIT), '--retry-buffer-bytes', String(8 * MB)];
    const { engine, router, client, growth } = await warmRouter(t, limits);
    engine.onConnection = (connection) => {
      connection.isRecording = false;
    };
    engine.onRequest = null;
    client.write('POST /generate HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n');
    const asked = await engine.next().then(() => engine.requests[0]!);
    const part = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(MB), Buffer.from('\r\n')]);
    let most = 0;
    const watch = setInterval(() => (most = Math.max(most, growth())), 20);
    t.after(() => clearInterval(watch));
    let written = 0;
    const writeOn = (): void => {
      while (written < 500 * MB && client.socket.writable) {
        written += MB;
        // The harness keeps what an engine gets; here only its amount matters.
        asked.wireBody.payload.length = 0;
        asked.wireBody.raw.length = 0;
        if (!client.socket.write(part)) return;
      }
    };
    client.socket.on('drain', writeOn);
    writeOn();
    const got = await client.answer('POST');
    deepEqual([got.status, got.get('x-turnout-error')], [413, 'payload_too_large']);
    await asked.connection.untilEnded();
    ok(written < 500 * MB, 'it was refused long before its end');
    ok(asked.connection.bytesReceived < LIMIT + 2 * MB, `${asked.connection.bytesReceived / MB} MB reached the engine`);
    ok(most < LIMIT / 2, `the router grew by ${most / MB} MB`);
    t.diagnostic(`the router grew by ${most / MB} MB`);
    client.reset();
    await router.untilIdle();
    equal(await router.metric('turnout_retry_buffer_bytes'), 0);
  },
);

/** Collects garbage on SIGUSR2 and says what is left. */
const COLLECT = `
  import v8 from 'node:v8';
  import vm from 'node:vm';
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  process.on('SIGUSR2', () => {
    gc(); gc();
    const { heapUsed, external } = process.memoryUsage();
    console.log('left ' + (heapUsed + external) + '.');
  });`;

test(
  'F38 idle keep-alive connections: about 10 kB each, and new requests are served',
  { skip: needsProc },
  async (t) => {
    // Of the matrix's 50,000, as many as a common limit of open files allows.
    const COUNT = 2_000;
    const { engine, router, client } = await warmRouter(t, [], preloaded(COLLECT));
    engine.onRequest = well();
    const inUse = async (): Promise<number> => {
      const from = router.output().length;
      router.child.kill('SIGUSR2');
      let match: RegExpExecArray | null = null;
      await until('the heap is measured', () => (match = /left (\d+)\./.exec(router.output().slice(from))) !== null);
      return Number(match![1]);
    };
    const { hostname, port } = new URL(router.url);
    const open = async (): Promise<void> => {
      const socket = connect(Number(port), hostname);
      t.after(() => socket.destroy());
      socket.on('error', () => {});
      socket.write(request('POST', '/generate', 'x'.repeat(2_000)));
      await once(socket, 'data');
    };
    const openMany = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i += 50) await Promise.all(Array.from({ length: 50 }, open));
    };
    await openMany(100);
    const [heapBefore, residentBefore] = [await inUse(), residentBytes(router)];
    await openMany(COUNT);
    const heap = ((await inUse()) - heapBefore) / COUNT;
    const resident = (residentBytes(router) - residentBefore) / COUNT;
    ok(heap < 12_000, `${heap} bytes of heap and buffers a connection`);
    ok(resident < 24_000, `${resident} bytes of the process a connection`);
    equal((await router.metric('turnout_client_connections')) >= COUNT + 100, true);
    client.write(HELLO);
    equal((await client.answer()).text, '"well"');
    equal(engine.requests.length, COUNT + 101);
    await router.untilIdle();
    t.diagnostic(`${Math.round(heap)} bytes of heap and buffers, ${Math.round(resident)} of the process a connection`);
  },
);

/**
 * On SIGUSR2 lets the young generation grow to its two halves of 16 MB, and then, when that may have been seen, makes what V8
 * grows it by: objects that live for some collections.
 */
const SURVIVE = `
  import v8 from 'node:v8';
  const young = () => v8.getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').space_size;
  const kept = [];
  let made = 0;
  const make = (count) => {
    for (let i = 0; i < count; i++) kept[made++ % 60_000] = { a: i, b: [i, i] };
  };
  process.on('SIGUSR2', () => {
    while (young() < ${32 * MB}) make(2_000);
    setTimeout(() => {
      make(2_000_000);
      console.log('young ' + young() + '.');
    }, 600);
  });`;

test('V8 is kept from growing its young generation to 128 MB', { skip: needsProc }, async (t) => {
  const { router } = await warmRouter(t, [], preloaded(SURVIVE));
  router.child.kill('SIGUSR2');
  let match: RegExpExecArray | null = null;
  await until('what lives is made', () => (match = /young (\d+)\./.exec(router.output())) !== null);
  equal(Number(match![1]), 32 * MB);
});
