import { deepEqual, equal, ok } from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { connectAsker, post, startEngines } from '../harness/fleet.ts';
import { until } from '../harness/within.ts';

const directory = mkdtempSync(join(tmpdir(), 'turnout-killed-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const SESSIONS = Array.from({ length: 30 }, (_, i) => post('/v1/completions', { prompt: 'x', session_id: `s${i}` }));

for (const policy of ['sticky_least_loaded', 'manual']) {
  test(`${policy}: sessions keep their workers when the router is killed and started again`, async (t) => {
    const dataDir = join(directory, policy);
    const engines = await startEngines(t, 3);
    const start = async () => {
      const ports = ['--port', '0', '--prometheus-port', '0', '--disable-health-check'];
      const workers = ['--worker-urls', ...engines.map(({ url }) => url)];
      const run = turnout(t, ['serve', ...ports, ...workers, '--policy', policy, '--data-dir', dataDir]);
      const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
      return { run, asker: await connectAsker(t, { url: url! }) };
    };
    const first = await start();
    const homes = await first.asker.whoGets(SESSIONS);
    equal(new Set(homes).size, 3);
    const file = join(dataDir, policy === 'manual' ? 'manual-keys.jsonl' : 'sticky-sessions.jsonl');
    await until('all is written', () => readFileSync(file, 'utf8').split('\n').length > SESSIONS.length);
    first.run.child.kill('SIGKILL');
    await first.run.ended;
    const second = await start();
    deepEqual(await second.asker.whoGets(SESSIONS.toReversed()), homes.toReversed());
  });
}

test('killed under load: what had been written by then is what the next one goes by', async (t) => {
  const dataDir = join(directory, 'under-load');
  const engines = await startEngines(t, 3);
  const start = async () => {
    const ports = ['--port', '0', '--prometheus-port', '0', '--disable-health-check'];
    const workers = ['--worker-urls', ...engines.map(({ url }) => url)];
    const policy = ['--policy', 'sticky_least_loaded', '--data-dir', dataDir];
    const run = turnout(t, ['serve', ...ports, ...workers, ...policy]);
    const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
    return { run, url: url! };
  };
  const sessionOf = (name: string) => post('/v1/completions', { prompt: 'x', session_id: name });
  const file = join(dataDir, 'sticky-sessions.jsonl');
  let kept: [string, string][] = [];
  for (let life = 0; life < 5; life++) {
    const { run, url } = await start();
    const asker = await connectAsker(t, { url });
    for (const [name, home] of [...kept.slice(0, 20), ...kept.slice(-40)])
      equal(engines[await asker.who(sessionOf(name))]!.url, home);
    let count = 0;
    const load = Array.from({ length: 4 }, async (_, lane) => {
      const own = await connectAsker(t, { url });
      for (let i = 0; ; i++, count++) await own.who(sessionOf(`${life}-${lane}-${i}`));
    });
    const ends = Promise.allSettled(load);
    // Responses do not wait for what is written.
    await until('sessions begin', () => count > 50 + 37 * life && readHomes(file).length > kept.length);
    run.child.kill('SIGKILL');
    await Promise.all([run.ended, ends]);
    const before = kept.length;
    kept = readHomes(file);
    ok(kept.length > before, `${kept.length} sessions are written, ${before} were`);
  }
});

/** Where each session is, as the file says that the killed router left. Its last line may be truncated. */
function readHomes(path: string): [string, string][] {
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
  const homes = new Map<string, string>();
  for (const line of lines) {
    const [name, value] = JSON.parse(line) as [string, string];
    homes.set(name, (JSON.parse(value) as [number, string])[1]);
  }
  return [...homes];
}

test('a policy that can\u2019t be loaded stops the start, in words', async (t) => {
  const run = turnout(t, ['serve', '--port', '0', '--prometheus-port', '0', '--policy', './not/there.ts']);
  equal(await run.ended, 2);
  equal(/^turnout: The policy "\.\/not\/there\.ts" can't be loaded: ENOENT/m.test(run.output()), true, run.output());
});

test('--eviction-interval-secs is taken, and said to have no effect', async (t) => {
  const options = ['--policy', 'cache_aware', '--eviction-interval-secs', '60'];
  const run = turnout(t, ['serve', '--port', '0', '--prometheus-port', '0', ...options]);
  await run.says(/"level":"warning".*--eviction-interval-secs has no effect/);
  await run.says(/listening on/);
});
