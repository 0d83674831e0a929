import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '../../..');

interface Instruction {
  readonly name: string;
  readonly rest: string;
}

/** The instructions of `deploy/Dockerfile` by stage. */
function stagesOf(text: string): Instruction[][] {
  const stages: Instruction[][] = [];
  for (const line of text.split('\n')) {
    const [, name, rest] = /^([A-Z]+) (.*)$/.exec(line) ?? [];
    if (name === undefined || rest === undefined) continue;
    if (name === 'FROM') stages.push([]);
    stages.at(-1)!.push({ name, rest });
  }
  return stages;
}

const all = (stage: readonly Instruction[], name: string): string[] =>
  stage.filter((each) => each.name === name).map(({ rest }) => rest);

/** No container engine is needed: absolute paths of the image lie below a temporary folder, and the base image is the system. */
test('the steps of the Dockerfile make a router that an unprivileged user can run', { timeout: 240_000 }, async (t) => {
  const [build, image] = stagesOf(readFileSync(join(root, 'deploy/Dockerfile'), 'utf8'));
  assert.ok(build !== undefined && image !== undefined);
  const place = mkdtempSync(join(tmpdir(), 'turnout-image-'));
  t.after(() => rmSync(place, { recursive: true }));
  chmodSync(place, 0o755);
  const inPlace = (text: string): string => text.replaceAll(/(?<![\w/.])\/(build|opt|data)\b/g, `${place}/$1`);
  const run = (command: string, cwd: string) => promisify(execFile)('sh', ['-c', inPlace(command)], { cwd });

  const context = join(place, 'build');
  mkdirSync(context);
  for (const { name, rest } of build) {
    if (name === 'RUN') await run(rest, context);
    if (name !== 'COPY') continue;
    const words = rest.split(' ');
    const target = words.pop()!;
    for (const word of words) {
      const to = target.endsWith('/') ? join(context, target, basename(word)) : join(context, target);
      cpSync(join(root, word), to, { recursive: true, filter: (path) => !/\/(node_modules|dist)$/.test(path) });
    }
  }
  const data = join(place, 'data');
  mkdirSync(data);
  // The base image's user "node" is number 1000 there; only root can become another user here.
  const isRoot = process.getuid?.() === 0;
  const identity = isRoot ? { uid: 1000, gid: 1000 } : {};
  if (isRoot) chownSync(data, 1000, 1000);
  assert.deepEqual(all(image, 'USER'), ['node']);

  const env = Object.fromEntries(
    all(image, 'ENV')
      .flatMap((rest) => rest.split(' '))
      .map((pair) => pair.split('=') as [string, string])
      .map(([name, value]) => [name, inPlace(value).replace('$PATH', process.env['PATH'] ?? '')]),
  );
  const [entry] = JSON.parse(all(image, 'ENTRYPOINT')[0]!) as [string];
  const words = JSON.parse(all(image, 'CMD')[0]!) as string[];
  const started = (args: readonly string[]): ChildProcess =>
    spawn(entry, [...words, ...args], { cwd: '/', env, stdio: ['ignore', 'pipe', 'inherit'], ...identity });
  const router = started(['--port', '0', '--prometheus-port', '0']);
  const ended = once(router, 'exit');
  t.after(async () => {
    router.kill('SIGKILL');
    await ended;
  });
  let output = '';
  const port = await new Promise<string>((resolve, reject) => {
    router.stdout!.on('data', (part: Buffer) => {
      output += part.toString();
      const found = /metrics on http:\/\/[^:]+:(\d+)/.exec(output);
      if (found !== null && output.includes('listening on ')) resolve(found[1]!);
    });
    void ended.then(() => reject(new Error(`it ended: ${output}`)));
  });
  const [, check = '[]'] = /CMD (\[.*\])$/.exec(all(image, 'HEALTHCHECK')[0]!) ?? [];
  const [program = '', ...args] = JSON.parse(check) as string[];
  const checked = (at: string) => promisify(execFile)(program, args, { env: { ...env, TURNOUT_PROMETHEUS_PORT: at } });
  await checked(port);
  await assert.rejects(checked('1'));
  router.kill('SIGTERM');
  assert.deepEqual(await ended, [0, null]);
});
