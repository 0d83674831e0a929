import { equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startScene, untilIdle } from '../harness/router.ts';
import { type Delivery, deliver, deliveriesOf } from './delivery.ts';

/** One odd or hostile answer of an engine, and what the client may see of it. */
export interface AnswerHazard {
  readonly name: string;
  readonly rfc: string;
  /** Bytes of the client's request. */
  readonly asks: string;
  readonly engineSays: string;
  /** What the engine does then; it does nothing while that is null. */
  readonly engineEnds: 'end' | 'reset' | null;
  /** Every byte that the client gets; null: the router's own 502, and nothing of the engine's. */
  readonly clientGets: string | null;
  /** How the client's connection ends; null: it goes on. */
  readonly clientEnding: 'end' | 'reset' | 'end or reset' | null;
  /** The engine's connection is used for the next request; else it is closed and never used again. */
  readonly isReused: boolean;
}

type Extras = Partial<Pick<AnswerHazard, 'asks' | 'engineEnds' | 'clientEnding' | 'isReused'>>;

const GET = 'GET /x HTTP/1.1\r\nhost: h\r\nx-request-id: r\r\n\r\n';
export const HEAD: string = GET.replace('GET', 'HEAD');
export const OLD: string = GET.replace('HTTP/1.1', 'HTTP/1.0');

const defaults = { asks: GET, engineEnds: null, clientEnding: null, isReused: false } as const;

/** 502 for the client, who may go on; the engine's connection is closed. */
export const bad = (name: string, rfc: string, engineSays: string, extras: Extras = {}): AnswerHazard => ({
  ...defaults,
  name,
  rfc,
  engineSays,
  clientGets: null,
  ...extras,
});

/** Taken: the client gets exactly these bytes, and both connections go on. */
export const taken = (
  name: string,
  rfc: string,
  engineSays: string,
  clientGets: string,
  extras: Extras = {},
): AnswerHazard => ({ ...defaults, name, rfc, engineSays, clientGets, isReused: true, ...extras });

/** Broken off: the client gets these bytes and the end of its connection, never an answer that looks whole. */
export const cut = (
  name: string,
  rfc: string,
  engineSays: string,
  clientGets: string,
  extras: Extras = {},
): AnswerHazard => ({ ...defaults, name, rfc, engineSays, clientGets, clientEnding: 'end or reset', ...extras });

/** An answer as the client gets it; the router adds the request's id. */
export const clientAnswer = (line: string, fields: readonly string[], body = ''): string =>
  `${[`HTTP/1.1 ${line}`, ...fields, 'x-request-id: r'].join('\r\n')}\r\n\r\n${body}`;

export const engineAnswer = (line: string, fields: readonly string[], body = ''): string =>
  `${[`HTTP/1.1 ${line}`, ...fields].join('\r\n')}\r\n\r\n${body}`;

const NEXT = 'GET /next HTTP/1.1\r\nhost: h\r\nx-request-id: n\r\n\r\n';

async function run(t: TestContext, hazard: AnswerHazard, delivery: Delivery): Promise<void> {
  // Idle connections stay: one that ends was ended for what came over it.
  const { client, ask, router } = await startScene(t, { disableRetries: true, workerIdleTimeoutMs: 60_000 });
  const { connection } = await ask(hazard.asks);
  await deliver(connection, hazard.engineSays, delivery);
  const { clientGets, clientEnding } = hazard;
  if (clientGets === null) {
    if (hazard.engineEnds !== null) connection[hazard.engineEnds]();
    const got = await client.answer(hazard.asks.split(' ')[0]);
    equal(got.status, 502);
    equal(got.fields.map(([name]) => name).join(), 'content-type,x-turnout-error,content-length,x-request-id');
    equal(client.received.toString('latin1'), got.headText + got.raw.toString('latin1'));
  } else {
    // What was cut has its last byte before the cut: waiting for it keeps a reset from overtaking it.
    if (clientGets !== '') await client.read(clientGets.slice(-20));
    if (hazard.engineEnds !== null) connection[hazard.engineEnds]();
  }
  if (clientEnding !== null) {
    const ending = await client.untilEnded();
    if (clientEnding !== 'end or reset') equal(ending, clientEnding);
  }
  if (clientGets !== null) equal(client.received.toString('latin1'), clientGets);
  if (!hazard.isReused) await connection.untilEnded();
  await untilIdle(router);
  if (clientEnding !== null) return;

  // The next request of the same client gets its own answer, and not a byte of what the engine said before.
  const before = client.received.length;
  const next = await ask(NEXT);
  equal(next.target, '/next');
  equal(next.connection === connection, hazard.isReused);
  next.connection.write(engineAnswer('200 OK', ['content-length: 4'], 'next'));
  await client.read('next');
  const after = client.received.toString('latin1', before);
  equal(after, clientAnswer('200 OK', ['content-length: 4'], 'next').replace(': r', ': n'));
}

/** One test for each answer; in it, a router of its own for each way of delivery. */
export function testAnswers(theme: string, hazards: readonly AnswerHazard[]): void {
  for (const hazard of hazards) {
    const { clientGets, clientEnding } = hazard;
    const verdict = clientGets === null ? '502' : clientEnding === 'end or reset' ? 'cut' : 'passed on';
    void test(`${theme}: ${hazard.name} → ${verdict} (${hazard.rfc})`, async (t) => {
      for (const delivery of deliveriesOf(hazard.engineSays)) {
        await run(t, hazard, delivery).catch((error: unknown) => {
          throw new Error(`sent ${delivery}: ${(error as Error).message}`, { cause: error });
        });
      }
    });
  }
}
