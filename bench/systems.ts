// The systems under test: found, started with the mock engines, and ready when a real request succeeds.
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startChild, type Child } from './child.ts';
import { freePort } from '../router/test/harness/free-port.ts';
import { runLoad } from './native.ts';
import { nginxConfig } from './nginx.ts';
import { findNginx, findPeer, type InstalledPeer } from './peers.ts';
import type { Contender, LoadShape, SystemName } from './rows.ts';

const repository = join(import.meta.dirname, '..');
const readyTimeoutMs = 30_000;

export interface Found {
  readonly version: string;
  /** The command that listens on `port` and sends to `urls`. */
  command(port: number, urls: readonly string[], contender: Contender, folder: string): Promise<string[]>;
}

/** A user's command: {port} is one word, {urls} and {args} become one word per entry. */
function custom(template: string): Found {
  return {
    version: `\`${template}\``,
    command: async (port, urls, { args }) =>
      template.split(' ').flatMap((word) => {
        if (word === '{urls}') return urls;
        if (word === '{args}') return args;
        return word.replace('{port}', String(port));
      }),
  };
}

/** @param checkout its folder, with its packages installed */
function turnout(checkout: string): Found | undefined {
  const main = join(checkout, 'router/bin/turnout.js');
  if (!existsSync(main)) return undefined;
  const git = spawnSync('git', ['describe', '--always', '--dirty'], { cwd: checkout, encoding: 'utf8' });
  return {
    version: git.stdout?.trim() || 'unknown',
    command: async (port, urls, { args }) => {
      const options = ['--host', '127.0.0.1', '--port', String(port), '--prometheus-port', '0', ...args];
      return [process.execPath, main, 'serve', '--worker-urls', ...urls, ...options];
    },
  };
}

function nodeCopy(): Found {
  return {
    version: `Node ${process.version}`,
    command: async (port, urls) => {
      const enginePorts = urls.map((url) => new URL(url).port);
      return [process.execPath, join(import.meta.dirname, 'node-copy.ts'), String(port), ...enginePorts];
    },
  };
}

function nginx(installed: InstalledPeer | undefined): Found | undefined {
  if (!installed) return undefined;
  return {
    version: installed.version,
    command: async (port, urls, { args }, folder) => {
      const file = join(folder, 'nginx.conf');
      writeFileSync(file, nginxConfig(port, urls, args, folder));
      return [...installed.command, '-c', file, '-e', join(folder, 'error.log')];
    },
  };
}

function peer(name: SystemName, installed: InstalledPeer | undefined): Found | undefined {
  if (!installed) return undefined;
  const quiet = name === 'vllm-router' ? 'warning' : 'warn'; // a log line per request would be measured too
  return {
    version: installed.version,
    command: async (port, urls, { args }) => {
      const metrics = String(await freePort());
      const options = [
        '--host',
        '127.0.0.1',
        '--port',
        String(port),
        '--prometheus-port',
        metrics,
        '--log-level',
        quiet,
      ];
      return [...installed.command, '--worker-urls', ...urls, ...options, ...args];
    },
  };
}

/** Which turnout is measured, if not this checkout's, and beside which other one. */
export interface Turnouts {
  readonly command: string | undefined;
  readonly before: string | undefined;
}

export function findSystem(name: SystemName, { command, before }: Turnouts): Found | undefined {
  if (name === 'turnout') return command === undefined ? turnout(repository) : custom(command);
  if (name === 'turnout-before') return before === undefined ? undefined : turnout(before);
  if (name === 'node-copy') return nodeCopy();
  if (name === 'nginx') return nginx(findNginx());
  return peer(name, findPeer(name));
}

export interface Running {
  readonly child: Child;
  readonly port: number;
}

/** Starts a contender and waits until small requests of the row's kind get the expected response. */
export async function startSystem(
  found: Found,
  contender: Contender,
  urls: readonly string[],
  load: LoadShape,
  folder: string,
): Promise<Running> {
  const port = await freePort();
  const child = startChild(await found.command(port, urls, contender, folder), join(folder, 'log'));
  const probe: LoadShape = {
    connections: 1,
    bodyBytes: 2048,
    ...(load.path === undefined ? {} : { path: load.path }),
    ...(load.events === undefined ? {} : { events: 1 }),
    ...(load.eventBytes === undefined ? {} : { eventBytes: load.eventBytes }),
  };
  const deadline = Date.now() + readyTimeoutMs;
  let complaint = '';
  while (Date.now() < deadline && !child.hasEnded()) {
    await sleep(200);
    const result = await runLoad(port, probe, { requests: 4 });
    if (result.errors === 0) {
      await sleep(500); // the second worker may be registered a moment after the first
      return { child, port };
    }
    complaint = result.firstError;
  }
  const reason = child.hasEnded() ? 'ended' : `is not ready after ${readyTimeoutMs / 1000} s (${complaint})`;
  const words = child.finalEvent();
  await child.stop();
  throw new Error(`${contender.label} ${reason}:\n${words}`);
}
