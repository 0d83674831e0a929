import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { startChild } from '../../../bench/child.ts';
import { freePort } from '../harness/free-port.ts';
import { findPeer } from '../../../bench/peers.ts';
import { post } from '../harness/fleet.ts';
import { send } from '../harness/client.ts';
import { until } from '../harness/within.ts';

// vllm-router sends it on to engines that work in pairs, whoever the client is.
delete process.env['OPENAI_API_KEY'];

export type PeerName = 'sglang-router' | 'vllm-router';

/** Python and a router of Rust, both cold. */
const STARTS_WITHIN_MS = 60_000;

const turnout = join(import.meta.dirname, '../../bin/turnout.js');

/** Which of our command lines stands for which of theirs. */
const verbs: Readonly<Record<PeerName, string>> = { 'sglang-router': 'launch_router', 'vllm-router': 'vllm-router' };

/** @param version that the known differences are of */
export function whyNotInstalled(name: PeerName, version: string): string | false {
  const peer = findPeer(name);
  if (peer === undefined) return `${name} is not installed: npm run bench -- --install-peers`;
  if (peer.version !== version) return `${name} ${peer.version} is installed, what is known here is of ${version}`;
  return false;
}

/** Starts the peer and this router with the very same flags. @returns where they listen, as soon as they route */
export async function startBoth(
  t: TestContext,
  name: PeerName,
  flags: readonly string[],
): Promise<{ theirs: string; ours: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-peers-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const start = async (command: readonly string[]): Promise<string> => {
    const [port, prometheusPort] = [await freePort(), await freePort()];
    const where = ['--host', '127.0.0.1', '--port', String(port), '--prometheus-port', String(prometheusPort)];
    const child = startChild([...command, ...flags, ...where], join(folder, `log-${port}`));
    t.after(() => child.stop());
    const url = `http://127.0.0.1:${port}`;
    await until(
      `${command.at(-1)} routes`,
      async () => {
        if (child.hasEnded()) throw new Error(`${command.join(' ')} has ended:\n${child.finalEvent()}`);
        const answer = await send(t, url, post('/v1/completions', { model: 'm', prompt: 'Are you there?' })).catch(
          () => null,
        );
        return answer?.status === 200;
      },
      STARTS_WITHIN_MS,
    );
    return url;
  };
  return {
    theirs: await start(findPeer(name)!.command),
    ours: await start([process.execPath, turnout, verbs[name]]),
  };
}
