// A bug of the router ends the request that it failed on; the process and the requests of others go on.
import { equal, match } from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { turnout } from '../cli/turnout.ts';
import { STREAM_HEAD, answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { moduleOf } from '../harness/plugin-module.ts';
import { EventReader } from '../harness/stalling-engine.ts';
import { ofSources } from '../harness/program.ts';

const source = (path: string): string => pathToFileURL(join(import.meta.dirname, '../../src', path)).href;

/** A plugin that makes the router's code fail where a header asks for it, and in timers and promises. */
const FAULTY = `{
  name: 'faulty',
  async create() {
    const { Attempt } = await import('${source('forward/attempt.ts')}');
    const { Admission } = await import('${source('admit/admission.ts')}');
    const fail = (where) => { throw new TypeError('bug in ' + where); };
    const { onBytes } = Attempt.prototype;
    Attempt.prototype.onBytes = function (bytes, count) {
      if (this.x.head.get('x-fail') === 'response') fail('response');
      return onBytes.call(this, bytes, count);
    };
    const { enter } = Admission.prototype;
    Admission.prototype.enter = function (x, then) {
      if (x.head.get('x-fail') === 'request') fail('request');
      return enter.call(this, x, then);
    };
    return {
      finished() {},
      appliesTo: (x) => x.head.get('x-late') === '1',
      admit: () => null,
      routes: ({ forClients }) => void forClients.get('/timer', (c) => {
        setTimeout(() => fail('timer'), 0);
        return c.text('asked');
      }),
    };
  },
}`;

test('a bug of the router ends its own request with 500 or as truncated, and the router goes on', async (t) => {
  const engine = await startEngine(t);
  const ports = ['--port', '0', '--prometheus-port', '0', '--worker-urls', engine.url, '--disable-health-check'];
  const args = ['serve', ...ports, '--disable-retries', '--plugin', moduleOf(t, FAULTY, 'faulty.mjs')];
  // The plugin changes modules of the sources.
  const run = turnout(t, args, {}, undefined, ofSources);
  const url = (await run.says(/listening on (http:[\w.:/]+)/))[1]!;
  const post = (headers: Record<string, string>) =>
    fetch(`${url}/generate`, { method: 'POST', headers, body: '{"text":"a"}' });

  // A stream of another client, open through all of it.
  const opening = EventReader.open(`${url}/generate`, { text: 'b', stream: true });
  const { connection } = await engine.next();
  connection.write(STREAM_HEAD);
  connection.write(chunk('data: {}\n\n'));
  const other = await opening;
  await other.untilEvents(1);

  for (const late of ['0', '1']) {
    const response = await post({ 'x-fail': 'request', 'x-late': late });
    equal(response.status, 500);
    equal(response.headers.get('x-turnout-error'), 'internal_error');
  }
  const failed = post({ 'x-fail': 'response' });
  const asked = await engine.next();
  asked.connection.write(answer(200, '{}'));
  equal((await failed).headers.get('x-turnout-error'), 'upstream_reset');
  equal(await (await fetch(`${url}/timer`)).text(), 'asked');
  await run.says(/uncaught exception \(4 since the start\), the router goes on: TypeError: bug in timer\n +at /);
  match(run.output(), /\(1 since the start\), the router goes on: TypeError: bug in request\n +at /);

  connection.write(chunk('data: {}\n\n'));
  connection.write(chunk(''));
  await other.untilEvents(2);
  const { total } = (await (await fetch(`${url}/requests`)).json()) as { total: number };
  equal(total, 0, 'no request is left in flight');
});
