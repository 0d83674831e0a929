import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { program } from '../harness/program.ts';

/** A router that was given a socket to its parent. */
function child(t: TestContext, args: readonly string[]) {
  const run = spawn(process.execPath, [program, ...args], {
    env: { ...process.env, TURNOUT_PARENT_FD: '3' },
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  });
  const ended = once(run, 'exit').then(([code]) => Number(code));
  t.after(() => run.kill('SIGKILL'));
  const socket = run.stdio[3] as Socket;
  const firstLine = once(createInterface(socket), 'line').then(([line]) => JSON.parse(String(line)) as unknown);
  return { socket, ended, firstLine };
}

test('a parent process gets the address of the router, which ends with it', { timeout: 60_000 }, async (t) => {
  const { socket, ended, firstLine } = child(t, ['--port', '0', '--prometheus-port', '0']);
  const { url, metricsUrl, adminUrl } = (await firstLine) as Record<string, string | null>;
  assert.equal(adminUrl, null);
  for (const each of [`${url}/liveness`, String(metricsUrl)]) assert.equal((await fetch(each)).status, 200);
  socket.destroy();
  assert.equal(await ended, 0);
});

test('a parent process gets what it needs to control the router', { timeout: 60_000 }, async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'turnout.yaml');
  const keys = join(folder, 'admin.keys');
  writeFileSync(file, `api-key: [DATA]\nadmin-api-key-file: ${keys}\nport: 0\nprometheus-port: 0\n`);
  writeFileSync(keys, '# who controls it\nADMIN\n');
  const { firstLine } = child(t, ['--config', file]);
  const { url, controlKey, certificate } = (await firstLine) as Record<string, string | null>;
  assert.equal(certificate, null);
  const headers = { authorization: `Bearer ${controlKey}` };
  assert.equal((await fetch(`${url}/workers`, { headers })).status, 200);
});

test('a parent process gets the reason why the router does not start', { timeout: 60_000 }, async (t) => {
  const { ended, firstLine } = child(t, ['--port', '0', '--prometheus-port', '0', '--policy', 'best']);
  const { error } = (await firstLine) as { error: string };
  assert.match(error, /^--policy: no such policy/);
  assert.equal(await ended, 2);
});
