import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import type { TestContext } from 'node:test';
import { until } from '../harness/within.ts';

const LISTENER = `
  const server = require('node:net').createServer(() => {});
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => console.log(server.address().port));`;

/** Stops a process without its doing; its sockets stay, and nobody reads them. Linux only. */
export async function freeze(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await until('the process stands still', () => / T \d/.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
}

/** An address where a connect is neither taken nor refused: its process is frozen and its queue full. @returns its URL */
export async function startFrozen(t: TestContext): Promise<string> {
  const child = spawn(process.execPath, ['-e', LISTENER], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const [said] = (await once(child.stdout, 'data')) as [Buffer];
  const port = Number(said.toString());
  await freeze(child.pid!);
  // Linux queues one connection more than the backlog says, and drops every packet of those after it.
  let queued = 0;
  for (let i = 0; i < 8; i++) {
    const socket = connect(port, '127.0.0.1', () => queued++);
    socket.on('error', () => {});
    t.after(() => socket.destroy());
  }
  await until('the queue is full', () => queued === 2);
  return `http://127.0.0.1:${port}`;
}
