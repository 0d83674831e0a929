import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, renameSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { turnout } from '../cli/turnout.ts';
import { folderOf } from '../harness/plugin-module.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until, within } from '../harness/within.ts';
import { basePort, isAlive, routerFlags, standIn, startLaunched, untilGone } from './launched.ts';

const post = (url: string): Promise<Response> =>
  fetch(`${url}/generate`, { method: 'POST', body: '{"text":"x","sampling_params":{"max_new_tokens":2}}' });

test('three engines run, serve, come back when one dies, and stop with the router', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sim', '--dp-size', '3', '--engine-base-port', basePort()];
  const run = await startLaunched(t, logDir, [...own, ...flags, '--', 'timeScale=0', 'model=tiny']);
  await run.untilHealthy(3);
  await run.says(/all 3 engines are ready/);
  for (let i = 0; i < 6; i++) assert.equal((await post(run.url)).status, 200);
  const pids: number[] = [];
  for (const index of [0, 1, 2]) {
    const [, pid] = await run.says(new RegExp(`\\[engine ${index}\\] .*"pid":(\\d+)`));
    const log = join(logDir, `engine-${index}.log`);
    await until('its log has the line', () => existsSync(log) && readFileSync(log, 'utf8').includes(`"pid":${pid}`));
    pids.push(Number(pid));
  }
  const models = (await (await fetch(`${run.url}/v1/models`)).json()) as { data: { id: string }[] };
  assert.equal(models.data[0]!.id, 'tiny', 'what stands after -- is the engines own');

  process.kill(pids[1]!, 'SIGKILL');
  await run.says(/engine 1 at \S+ was ended by SIGKILL; it is started again in 1 s/);
  const again = await run.says(new RegExp(`\\[engine 1\\] (?!.*"pid":${pids[1]!}).*"pid":(\\d+)`));
  await run.untilHealthy(3);
  for (let i = 0; i < 6; i++) assert.equal((await post(run.url)).status, 200);

  run.child.kill('SIGTERM');
  assert.equal(await run.ended, 0);
  assert.match(run.output(), /all engines are stopped/);
  for (const pid of [pids[0]!, pids[2]!, Number(again[1])]) assert.ok(!isAlive(pid), `engine ${pid} lives on`);
});

test('a part of the router that cannot be closed does not keep the engines from being stopped', async (t) => {
  // As on a disk that has become read-only: the file with the id of the process stays.
  const files = {
    'read-only.mjs': `
      import fs from 'node:fs';
      import { syncBuiltinESMExports } from 'node:module';
      fs.rmSync = () => {
        throw new Error('EROFS: read-only file system');
      };
      syncBuiltinESMExports();
      export default { name: 'read-only', create: () => ({ finished() {} }) };
    `,
  };
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sim', '--engine-base-port', basePort(), '--data-dir', temporaryFolder(t)];
  const plugin = ['--plugin', join(folderOf(t, files), 'read-only.mjs')];
  const run = await startLaunched(t, logDir, [...own, ...plugin, ...flags, '--', 'timeScale=0']);
  await run.untilHealthy(1);
  run.child.kill('SIGTERM');
  assert.equal(await within(run.ended, 'it ends'), 0);
  assert.match(run.output(), /turnout: not everything was closed in order: EROFS/);
  assert.match(run.output(), /all engines are stopped/);
});

test('a router that is killed leaves nothing behind, not even what its engines started', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'vllm', '--engine-command', standIn, '--dp-size', '2'];
  const args = [...own, '--engine-base-port', basePort(), ...flags, '--', '--stubborn-child'];
  const run = await startLaunched(t, logDir, args);
  await run.says(/all 2 engines are ready/);
  const pids = Array.from(run.output().matchAll(/\[engine \d\] (?:pid|child) (\d+)/g), ([, pid]) => Number(pid));
  assert.equal(pids.length, 4);
  assert.ok(pids.every(isAlive));
  run.child.kill('SIGKILL');
  await Promise.all(pids.map(untilGone));
});

test('children of an engine end with it, and it is stopped as engines are', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sglang', '--engine-command', standIn, '--engine-base-port', basePort()];
  const run = await startLaunched(t, logDir, [...own, ...flags, '--', '--stubborn-child']);
  await run.says(/engine 0 at \S+ is ready/);
  const [pid, child] = Array.from(run.output().matchAll(/\[engine 0\] (?:pid|child) (\d+)/g), ([, each]) =>
    Number(each),
  );
  run.child.kill('SIGINT');
  assert.equal(await run.ended, 0);
  await untilGone(pid!);
  await untilGone(child!);
});

test('each engine gets its GPUs, and --dp-size engines need enough of them', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'vllm', '--engine-command', standIn, '--dp-size', '2', '--gpus', '0,1,2,3'];
  const args = [...own, '--engine-base-port', basePort(), ...flags, '--'];
  const run = await startLaunched(t, logDir, [...args, '-tp', '2']);
  await run.untilHealthy(2);
  const gpus = new Set<unknown>();
  for (let i = 0; i < 2; i++) gpus.add(((await (await post(run.url)).json()) as { gpus: string }).gpus);
  assert.deepEqual(gpus, new Set(['0,1', '2,3']));
  const refused = turnout(t, [...args, '-tp', '4']);
  assert.equal(await refused.ended, 2);
  assert.match(refused.output(), /2 engines with 4 GPUs each need 8, and there are 4/);
});

test("`launch_server` takes SGLang's command line", async (t) => {
  const { flags, logDir } = routerFlags(t, '--router-');
  const own = ['launch_server', '--model-path', '/models/x', '--dp-size', '2', '--engine-command', standIn];
  const more = [
    '--router-dp-worker-base-port',
    basePort(),
    '--router-mini-lb',
    '--tp-size',
    '1',
    '--router-log-level',
    'debug',
  ];
  const run = await startLaunched(t, logDir, [...own, ...more, ...flags], { CUDA_VISIBLE_DEVICES: '' });
  assert.match(run.output(), /--router-mini-lb has no effect: there is one router/);
  assert.match(run.output(), /"policy":"round_robin"/);
  await run.untilHealthy(2);
  const { args } = (await (await post(run.url)).json()) as { args: string[] };
  assert.deepEqual(args.slice(0, -1), ['--model-path', '/models/x', '--tp-size', '1', '--host', '127.0.0.1', '--port']);
});

test('engines that only die are given up, and the router with them', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sglang', '--engine-command', standIn, '--engine-base-port', basePort()];
  const run = await startLaunched(t, logDir, [...own, '--engine-give-up-secs', '2', ...flags, '--', '--dies']);
  assert.equal(await run.ended, 1);
  assert.match(run.output(), /engine 0 at \S+ ended with exit code 3; it is started again in 1 s/);
  assert.match(run.output(), /it keeps failing and is not started again/);
});

test('engines whose ranks are workers are given up, and the router with them', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sglang', '--engine-command', standIn, '--engine-base-port', basePort()];
  const more = ['--intra-node-data-parallel-size', '2', '--engine-give-up-secs', '0'];
  const run = await startLaunched(t, logDir, [...own, ...more, ...flags, '--', '--dies']);
  assert.equal(await within(run.ended, 'the router ends'), 1);
});

test('after SIGHUP the output of an engine goes to a new file, if another program has renamed the old one', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sim', '--engine-base-port', basePort()];
  const run = await startLaunched(t, logDir, [...own, ...flags, '--', 'timeScale=0']);
  await run.untilHealthy(1);
  // The last one: if its port was taken in between, it was started again.
  const [, pid] = run.output().match(/.*\[engine 0\] .*"pid":(\d+)/s)!;
  const file = join(logDir, 'engine-0.log');
  await until('the first lines are written', () => existsSync(file));
  renameSync(file, `${file}.old`);
  run.child.kill('SIGHUP');
  await run.says(/configuration reloaded/);
  process.kill(Number(pid), 'SIGKILL');
  const [, again] = await run.says(new RegExp(`\\[engine 0\\] (?!.*"pid":${pid}).*"pid":(\\d+)`));
  await until('the new file has its lines', () => existsSync(file) && readFileSync(file, 'utf8').includes(again!));
});

test('a router with workers elsewhere goes on without its engines', async (t) => {
  const elsewhere = await startSimEngine({ timeScale: 0 });
  t.after(() => elsewhere.close());
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'sglang', '--engine-command', standIn, '--engine-base-port', basePort()];
  const more = ['--engine-give-up-secs', '0', '--worker-urls', elsewhere.url];
  const run = await startLaunched(t, logDir, [...own, ...more, ...flags, '--', '--dies']);
  await run.says(/it keeps failing and is not started again/);
  await run.untilHealthy(1);
  assert.equal((await post(run.url)).status, 200);
  run.child.kill('SIGTERM');
  assert.equal(await run.ended, 0);
});

test('an engine that exits at once three times is given up, with what to check and without keys', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const command = `env HF_TOKEN=never-shown ${standIn}`;
  const own = ['launch', '--engine', 'sglang', '--engine-command', command, '--engine-base-port', basePort()];
  const run = await startLaunched(t, logDir, [...own, ...flags, '--', '--dies']);
  assert.equal(await run.ended, 1);
  assert.doesNotMatch(run.output(), /never-shown/);
  assert.match(run.output(), /engine 0: (?:CUDA_\S+ )?env HF_TOKEN=… .*stand-in/);
  assert.match(run.output(), /it exited 3 times without listening.*is it installed.*--engine-command/);
});

test('an engine program that is not there is named', async (t) => {
  const { flags, logDir } = routerFlags(t);
  const own = ['launch', '--engine', 'vllm', '--engine-command', 'no-such-program serve', '--engine-give-up-secs', '0'];
  const run = await startLaunched(t, logDir, [...own, '--engine-base-port', basePort(), ...flags, '--']);
  assert.equal(await run.ended, 1);
  await until('its shell is quoted', () => /\[engine 0\].*no-such-program.*not found/.test(run.output()));
});

test('a router that can not listen starts no engine', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const own = ['launch', '--engine', 'sim', '--engine-base-port', basePort()];
  const run = turnout(t, [...own, ...routerFlags(t).flags, '--port', String(port)]);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /another process listens there/);
  assert.doesNotMatch(run.output(), /\[launch\]/);
});

test('wrong flags are refused before anything runs', async (t) => {
  for (const [args, words] of [
    [['--engine', 'tgi'], /--engine: sglang, vllm or sim/],
    [['--engine', 'sim', '--dp-size', '0'], /--dp-size: a whole number from 1/],
    [['--engine', 'sim', '--', 'speed=9'], /speed=9: expected name=value/],
    [['--engine', 'sim', '--', 'kind=vlm'], /kind=vlm: kind is sglang or vllm/],
    [['--engine', 'sim', '--', 'variedSampling=1'], /variedSampling=1: variedSampling is true or false/],
    [['--engine', 'sim', '--', 'timeScale=-1'], /--engine sim: timeScale must be 0 or more/],
    [['--engine', 'sim', '--engine-base-port', 'x'], /--engine-base-port/],
    [['--engine', 'sim', '--gpus', '0,1'], /--gpus: not possible with simulated engines/],
    [['--engine', 'sim', '--gpus-per-engine', '1'], /--gpus-per-engine: not possible/],
    [['--engine', 'sim', '--engine-command', 'vllm serve'], /--engine-command: not possible/],
    [['--engine', 'vllm', '--engine-command', 'HF_TOKEN=x vllm serve'], /--engine-command: HF_TOKEN=… is no program/],
    [
      ['--engine', 'sim', '--pd-disaggregation'],
      /--pd-disaggregation: not possible with launch.* --prefill and --decode/,
    ],
    [['--engine', 'sim', '--vllm-pd-disaggregation'], /--vllm-pd-disaggregation: not possible with launch/],
  ] as const) {
    const run = turnout(t, ['launch', ...args]);
    assert.equal(await run.ended, 2);
    assert.match(run.output(), words);
  }
});
