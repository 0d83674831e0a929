import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Client, connectClient } from '../harness/client.ts';
import type { Engine, EngineConnection } from '../harness/engine.ts';
import { WireBody, readWireHead, wire } from '../harness/message.ts';
import { type RouterOptions, startScene } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { type Delivery, deliver, deliveriesOf } from './delivery.ts';

/**
 * One odd or hostile input from a client, and what a reader that goes by the RFCs makes of it. `ENGINE` in expected bytes
 * stands for the engine's address.
 */
export interface Hazard {
  readonly name: string;
  /** What demands the verdict. */
  readonly rfc: string;
  readonly sends: string;
  /** Statuses of the answers that the client gets, in order. */
  readonly statuses: readonly number[];
  /** Every byte that the engine gets of it, when it is sent in one piece. */
  readonly engineGets: string;
  /** The connection is ended after the last answer, and nothing that follows is read. */
  readonly closes: boolean;
  /** More has to come: the client ends its side, and that's that. */
  readonly isUnfinished: boolean;
  /** Nothing is sent behind it: the verdict has to come without. */
  readonly isAlone: boolean;
  readonly options: RouterOptions;
}

interface Extras {
  readonly closes?: boolean;
  readonly statuses?: readonly number[];
  readonly isAlone?: boolean;
  readonly options?: RouterOptions;
}

const defaults = { engineGets: '', closes: true, isUnfinished: false, isAlone: false, options: {} } as const;

/** Refused: the status, the connection closed, and no engine hears of it. */
export const refused = (name: string, rfc: string, status: number, sends: string, extras: Extras = {}): Hazard => ({
  ...defaults,
  name,
  rfc,
  sends,
  statuses: [status],
  ...extras,
});

/** Passed on: the engine gets exactly these bytes. */
export const passed = (name: string, rfc: string, sends: string, engineGets: string, extras: Extras = {}): Hazard => ({
  ...defaults,
  name,
  rfc,
  sends,
  engineGets,
  statuses: [200],
  closes: false,
  ...extras,
});

/** Never a whole request: no answer, and nothing that an engine could take for a whole one. */
export const unfinished = (name: string, rfc: string, sends: string, engineGets = ''): Hazard => ({
  ...defaults,
  name,
  rfc,
  sends,
  engineGets,
  statuses: [],
  isUnfinished: true,
  isAlone: true,
});

/** A request as clients send it. Its id is given, so that the router adds none. */
export const head = (line: string, ...fields: readonly string[]): string =>
  `${[line, 'host: h', 'x-request-id: r', ...fields].join('\r\n')}\r\n\r\n`;

/** A POST with these field lines. */
export const post = (fields: string | readonly string[], body = ''): string =>
  head('POST /x HTTP/1.1', ...(typeof fields === 'string' ? [fields] : fields)) + body;

/** What the engine gets of it: its own host first, then the fields that are passed on. */
export const engineHead = (line: string, ...fields: readonly string[]): string =>
  `${[`${line} HTTP/1.1`, 'host: ENGINE', 'x-request-id: r', ...fields].join('\r\n')}\r\n\r\n`;

export const enginePost = (body: string, ...fields: readonly string[]): string =>
  engineHead('POST /x', ...fields, `content-length: ${Buffer.byteLength(body, 'latin1')}`) + body;

/** Sent behind each input: a request of its own where the input was one, and nothing at all where it was refused. */
const BEHIND = 'GET /behind HTTP/1.1\r\nhost: h\r\nx-request-id: b\r\n\r\n';
const ENGINE_BEHIND = 'GET /behind HTTP/1.1\r\nhost: ENGINE\r\nx-request-id: b\r\n\r\n';
/** Sent last, on a connection of its own: what the engine got until then is all it ever gets. */
const PROBE = 'GET /probe HTTP/1.1\r\nhost: h\r\nx-request-id: p\r\n\r\n';
const ENGINE_PROBE = 'GET /probe HTTP/1.1\r\nhost: ENGINE\r\nx-request-id: p\r\n\r\n';
const OK_HEAD = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n';

/** Answers each request as soon as it is whole. */
function answerAll(connection: EngineConnection): void {
  let answered = 0;
  connection.socket.on('data', () => {
    const whole = connection.requests.filter((request) => request.wireBody.isComplete);
    for (const { method } of whole.slice(answered)) connection.write(OK_HEAD + (method === 'HEAD' ? '' : 'ok'));
    answered = whole.length;
  });
}

const receivedBy = (engine: Engine): string =>
  engine.connections.map((connection) => connection.received.toString('latin1')).join('');

interface Said {
  readonly line: string;
  readonly fields: readonly string[];
  readonly payload: string;
}

/** Requests without their framing: a chunked body is passed on by its length or in chunks, as its bytes come in. */
function unframed(bytes: string): Said[] {
  const said: Said[] = [];
  for (let rest = wire(bytes); rest.length > 0;) {
    const read = readWireHead(rest);
    ok(read !== null, `a head that is not whole: ${JSON.stringify(rest.toString('latin1'))}`);
    const isChunked = read.get('transfer-encoding') !== undefined;
    const body = new WireBody(isChunked ? 'chunked' : Number(read.get('content-length') ?? 0));
    rest = body.push(rest.subarray(read.headText.length));
    ok(body.isComplete, `a body that is not whole: ${JSON.stringify(bytes)}`);
    const lines = read.headText.split('\r\n').slice(1, -2);
    const fields = lines.filter((line) => !/^(content-length|transfer-encoding):/i.test(line));
    said.push({ line: read.line, fields, payload: Buffer.concat(body.payload).toString('latin1') });
  }
  return said;
}

/** Requests that were begun and never will be whole: their connections have to end. They are put aside. */
async function putAsideBroken(engine: Engine): Promise<void> {
  const broken = engine.connections.filter(({ requests }) => requests.some((each) => !each.wireBody.isComplete));
  for (const connection of broken) {
    await connection.untilEnded();
    equal(connection.requests.length, 1);
    engine.connections.splice(engine.connections.indexOf(connection), 1);
  }
}

/** The client has no more to say, when the engine has all that came. */
async function leaveUnfinished(client: Client, engine: Engine, expected: string, delivery: Delivery): Promise<void> {
  if (expected !== '') {
    await until('the engine has what came of the request', () => {
      const [request] = engine.requests;
      const payload = Buffer.concat(request?.wireBody.payload ?? []).toString('latin1');
      return payload !== '' && expected.replaceAll(/\r\n$/g, '').endsWith(payload);
    });
    if (delivery === 'whole') equal(receivedBy(engine), expected);
  }
  client.end();
}

async function run(t: TestContext, hazard: Hazard, delivery: Delivery): Promise<void> {
  const { statuses, closes, isUnfinished } = hazard;
  const { client, engine, router } = await startScene(t, {
    ...hazard.options,
    // Connections stay: one that ends was ended for what came over it.
    workerIdleTimeoutMs: 60_000,
    engine: { onConnection: answerAll },
  });
  const address = new URL(engine.url).host;
  const engineGets = hazard.engineGets.replaceAll('ENGINE', address);
  await deliver(client, hazard.isAlone ? hazard.sends : hazard.sends + BEHIND, delivery);
  if (isUnfinished) await leaveUnfinished(client, engine, engineGets, delivery);
  const methods = hazard.sends.split(' ', 1);
  for (const status of closes ? statuses : [...statuses, 200]) {
    const got = await client.answer(methods.shift());
    equal(got.status, status);
    if (got.get('x-turnout-error') !== undefined) equal(got.get('connection'), 'close');
  }
  if (closes) {
    equal(await client.untilEnded(), 'end');
    client.write(BEHIND);
  }
  const probe = await connectClient(t, router.url);
  probe.write(PROBE);
  equal((await probe.answer()).text, 'ok');
  equal(client.unread, '');

  const isRefused = statuses.some((status) => status !== 200);
  if (isUnfinished || (isRefused && delivery !== 'whole')) await putAsideBroken(engine);
  const expected = (isUnfinished ? '' : engineGets) + (closes ? '' : ENGINE_BEHIND) + ENGINE_PROBE;
  const all = receivedBy(engine);
  const isRechunked = delivery !== 'whole' && /transfer-encoding/i.test(hazard.sends);
  if (isRechunked) deepEqual(unframed(all), unframed(expected.replaceAll('ENGINE', address)));
  else equal(all, expected.replaceAll('ENGINE', address));
}

/** One test for each input; in it, a router of its own for each way of delivery. */
export function testAll(theme: string, hazards: readonly Hazard[]): void {
  for (const hazard of hazards) {
    const verdict = hazard.isUnfinished ? 'no answer' : hazard.statuses.join(' ');
    void test(`${theme}: ${hazard.name} → ${verdict}${hazard.closes ? ', closed' : ''} (${hazard.rfc})`, async (t) => {
      for (const delivery of deliveriesOf(hazard.sends)) {
        await run(t, hazard, delivery).catch((error: unknown) => {
          throw new Error(`sent ${delivery}: ${(error as Error).message}`, { cause: error });
        });
      }
    });
  }
}
