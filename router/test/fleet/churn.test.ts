import { equal, ok } from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { type TestContext, test } from 'node:test';
import { type Client, connectClient, request } from '../harness/client.ts';
import { type Engine, type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { type Random, seededRandom } from '../../src/kit/rng.ts';
import { often } from '../harness/often.ts';

const REQUESTS = often(4_000, 10_000);
const CLIENTS = 32;
const ENGINES = 6;
const SEED = 20_261;

const digest = (payload: Buffer | string): string => createHash('sha1').update(payload).digest('hex');

/** Answers with a digest of what it was asked: in one small write, so that no kill falls inside an answer. */
function echo(asked: EngineRequest, random: Random): void {
  const { connection } = asked;
  connection.isRecording = false;
  // Without a timer: what is on its way to a killed engine never comes whole.
  void asked.whole.then(() => {
    const text = digest(Buffer.concat(asked.wireBody.payload));
    const part = Math.floor(random() * text.length);
    const isChunked = random() < 0.5;
    const say = (): void => {
      if (!isChunked) connection.write(answer(200, text));
      else {
        const chunks = part === 0 ? chunk(text) : chunk(text.slice(0, part)) + chunk(text.slice(part));
        connection.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`);
      }
    };
    if (random() < 0.3) setTimeout(say, random() * 4);
    else say();
  });
}

async function startEcho(t: TestContext, random: Random): Promise<Engine> {
  return startEngine(t, { onRequest: (asked) => echo(asked, random) });
}

/** Sends its share of the requests, one after the other. @returns how many were answered rightly */
async function runClient(client: Client, next: () => number | null, random: Random): Promise<number> {
  let right = 0;
  for (let n = next(); n !== null; n = next()) {
    const body = `${n}:${'x'.repeat(Math.floor(random() * (random() < 0.02 ? 90_000 : 300)))}`;
    client.write(request('POST', '/generate', body));
    const got = await client.answer('POST');
    client.parts.length = 0;
    equal(got.status, 200, `request ${n}: ${got.text}`);
    equal(got.text, digest(body), `request ${n} got another answer`);
    right++;
  }
  equal(client.unread, '');
  return right;
}

test(`${REQUESTS} requests while workers come, go and die: each is answered once, with its own answer`, async (t) => {
  const random = seededRandom(SEED);
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => startEcho(t, random)));
  const gone: Engine[] = [];
  const dead: Engine[] = [];
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.2,
    healthFailureThreshold: 1,
  });
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => connectClient(t, router.url)));

  let sent = 0;
  let isDone = false;
  const churn = async (): Promise<number> => {
    let changes = 0;
    while (!isDone) {
      const from = sent;
      await until('some requests have gone by', () => isDone || sent >= from + 40);
      changes++;
      const at = Math.floor(random() * engines.length);
      const dice = random();
      // Those killed last time have been tried in vain for long enough.
      for (const { url } of dead.splice(0)) router.fleet.remove(router.fleet.get(url)!);
      if (dice < 0.3 && engines.length > 3) {
        // Killed without a word to the router.
        const [engine] = engines.splice(at, 1);
        engine!.kill();
        dead.push(engine!);
        gone.push(engine!);
      } else if (dice < 0.6 && engines.length > 3) {
        // Removed, but still running: what it has it finishes.
        const [engine] = engines.splice(at, 1);
        router.fleet.remove(router.fleet.get(engine!.url)!);
        gone.push(engine!);
      } else if (engines.length < 10) {
        const engine = await startEcho(t, random);
        engines.push(engine);
        router.fleet.add(engine.url);
      }
    }
    return changes;
  };
  const churning = churn();
  const right = await Promise.all(
    clients.map((client) => runClient(client, () => (sent < REQUESTS ? sent++ : null), random)),
  ).finally(() => (isDone = true));
  const changes = await churning;

  equal(
    right.reduce((sum, count) => sum + count, 0),
    REQUESTS,
  );
  ok(changes > REQUESTS / 160, `the fleet changed ${changes} times`);
  await untilIdle(router);
  for (const engine of gone) {
    await until('a removed engine has no connection left', () => engine.openConnections === 0);
  }
  for (const client of clients) client.socket.destroy();
  while (router.fleet.workers.length > 0) router.fleet.remove(router.fleet.workers[0]!);
  for (const engine of engines) {
    await until('no connection is left', () => engine.openConnections === 0);
  }
  const metrics = await (await fetch(router.metricsUrl)).text();
  ok(metrics.includes(`turnout_requests_total{outcome="complete"} ${REQUESTS}\n`), metrics.slice(0, 600));
  const retries = [...metrics.matchAll(/^turnout_retries_total\{failure="(?:stale|reset)"\} (\d+)$/gm)];
  const again = retries.reduce((sum, [, count]) => sum + Number(count), 0);
  const seen = [...engines, ...gone].reduce((sum, engine) => sum + engine.requests.length, 0);
  ok(seen >= REQUESTS && seen <= REQUESTS + again, `${seen} requests reached engines, ${again} were sent again`);
  ok(metrics.includes('turnout_requests_in_flight 0\n'));
  ok(metrics.includes('turnout_retry_buffer_bytes 0\n'), /turnout_retry_buffer_bytes.*/g.exec(metrics)?.[0]);
  await until('no client is left', async () =>
    (await (await fetch(router.metricsUrl)).text()).includes('turnout_client_connections 0\n'),
  );
});
