import { equal, match } from 'node:assert/strict';
import { once } from 'node:events';
import { type RequestListener, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { startTestRouter } from '../harness/router.ts';
import { turnout } from './turnout.ts';

/** @returns the host and port of a server that is no router */
async function startOther(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const asking = [['top', '--once'], ['explain', 'x', '--url'], ['swap', 'x', '--url'], ['tap']] as const;

test('a page in place of the response of a router is said in words', async (t) => {
  const at = await startOther(t, (_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end('<html>sign in</html>');
  });
  for (const words of asking) {
    const run = turnout(t, [...words, `http://${at}`]);
    equal(await run.ended, 2);
    match(run.output(), /^turnout: http:.* answered .*Is this a turnout router\?\n$/);
  }
});

test('JSON that is not a router’s is said in words', async (t) => {
  let answers: (path: string) => unknown = () => null;
  const at = await startOther(t, (request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(answers(request.url!.split('?')[0]!)));
  });
  const others = [{}, [], null, 'ok', { state: 7, workers: null }];
  const words = [
    ['top', '--once'],
    ['explain', 'x', '--url'],
    ['explain', 'x', '--json', '--url'],
    ['swap', 'x', '--url'],
  ];
  for (const [i, other] of others.entries()) {
    answers = () => other;
    // One of the commands for each but the first: they share the check.
    for (const each of i === 0 ? words : [words[i % words.length]!]) {
      const run = turnout(t, [...each, `http://${at}`]);
      equal(await run.ended, 2);
      match(run.output(), /^turnout: http:\S+ answered 200, and other JSON \(.*\)\. Is this a turnout router\?\n$/);
    }
  }
  for (const list of [
    { state: 'queued' },
    { state: 'queued', deployments: [{}] },
    { state: 'queued', deployments: [] },
  ]) {
    answers = () => list;
    const run = turnout(t, ['swap', 'x', '--watch', '--url', `http://${at}`]);
    equal(await run.ended, 2);
    match(run.output(), /^x: queued\nturnout: .*(Is this a turnout router\?|lists no deployment)\n$/);
  }
  const row = { url: 'http://a', not_serving_because: [], last_minute: null };
  answers = (path) => (path === '/workers' ? { workers: [row] } : {});
  const top = turnout(t, ['top', '--once', `http://${at}`]);
  equal(await top.ended, 2);
  match(top.output(), /^turnout: .* Is this a turnout router\?\n$/);
});

test('events that are not a router’s are said in words', async (t) => {
  let data = '';
  const at = await startOther(t, (_, response) => {
    response.setHeader('content-type', 'text/event-stream');
    response.end(`data: ${data}\n\n`);
  });
  for (data of ['hello', '{}']) {
    const run = turnout(t, ['tap', `http://${at}`]);
    equal(await run.ended, 2);
    match(run.output(), /\nturnout: http:\S+\/tap sent an event, and .*Is this a turnout router\?\n$/);
  }
});

test('a response that is truncated is said in words', async (t) => {
  const at = await startOther(t, (request, response) => {
    response.writeHead(200, request.url!.startsWith('/tap') ? { 'content-type': 'text/event-stream' } : {});
    response.write('{"total":', () => setTimeout(() => response.destroy(), 50));
  });
  for (const words of asking) {
    const run = turnout(t, [...words, `http://${at}`]);
    equal(await run.ended, 2);
    match(run.output(), /^turnout: .*(is truncated|the connection broke): \w+\n$/m);
    equal(run.output().includes('    at '), false, run.output());
  }
});

test('the scheme of the address may be left out', async (t) => {
  const router = await startTestRouter(t, {});
  const at = router.url.slice('http://'.length);
  const run = turnout(t, ['top', '--once', at]);
  equal(await run.ended, 0, run.output());
  match(run.output(), new RegExp(`^turnout at ${at}\n`));
  const wrong = turnout(t, ['top', '--once', 'http://a b']);
  equal(await wrong.ended, 2);
  equal(wrong.output(), 'turnout: http://a b is not the address of a router: give http://host:port\n');
});

test('of several keys in TURNOUT_ADMIN_API_KEY, as a router takes them, one is sent', async (t) => {
  const router = await startTestRouter(t, { adminApiKey: ['key-1', 'key-2'] });
  for (const keys of ['key-1, key-2', '["key-1", "key-2"]']) {
    const run = turnout(t, ['top', '--once', router.url], { TURNOUT_ADMIN_API_KEY: keys });
    equal(await run.ended, 0, run.output());
  }
});
