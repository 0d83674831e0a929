import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { spawnSimEngine } from '../../../../simulator/src/spawn.ts';
import { turnout } from '../../cli/turnout.ts';
import { until } from '../../harness/within.ts';
import { freeze } from '../frozen.ts';

/** How one request went for its client. */
interface Outcome {
  readonly id: string;
  readonly status: number;
  readonly firstByteMs: number;
  readonly isCut: boolean;
}

/** Sends one request. A stream brings its first byte early, a whole answer with its last token. */
async function ask(url: string, id: string, isStream: boolean): Promise<Outcome> {
  const startMs = performance.now();
  let firstByteMs = Infinity;
  let status = 0;
  let text = '';
  try {
    const response = await fetch(`${url}/generate`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': id, 'x-session-id': id.split('.')[0]! },
      body: JSON.stringify({ text: id, stream: isStream, sampling_params: { max_new_tokens: 300, ignore_eos: true } }),
    });
    status = response.status;
    const decoder = new TextDecoder();
    for await (const part of response.body!) {
      firstByteMs = Math.min(firstByteMs, performance.now() - startMs);
      text += decoder.decode(part as Uint8Array, { stream: true });
    }
  } catch {
    return { id, status, firstByteMs, isCut: true };
  }
  return { id, status, firstByteMs, isCut: text.includes('engine_hung') };
}

test(
  'all defaults: SIGSTOP of one of four engines under load keeps no client for 60 s',
  { timeout: 180_000 },
  async (t) => {
    const engines = await Promise.all(Array.from({ length: 4 }, () => spawnSimEngine()));
    t.after(() => Promise.all(engines.map((engine) => engine.kill())));
    const urls = engines.map((engine) => engine.url);
    const run = turnout(t, ['serve', '--port', '0', '--prometheus-port', '0', '--worker-urls', ...urls]);
    const [, url] = await run.says(/listening on (https?:\/\/[^\s"]+)/);
    await until('all are known', () => run.output().split('worker identified').length === 5, 20_000);
    const outcomes: Outcome[] = [];
    let isOver = false;
    const clients = Array.from({ length: 48 }, async (_, client) => {
      for (let turn = 0; !isOver; turn++) outcomes.push(await ask(url!, `s${client}.${turn}`, client % 3 === 0));
    });
    await until('it is busy', () => outcomes.length >= 100, 60_000);
    const [frozen] = engines as [(typeof engines)[0]];
    await freeze(frozen.pid);
    await until('it hangs', () => run.output().includes('worker hung'), 60_000);
    await until('the fleet goes on without it', () => run.output().split('"attempt failed"').length > 1, 10_000);
    isOver = true;
    await Promise.all(clients);
    const worst = Math.max(...outcomes.filter(({ status }) => status === 200).map(({ firstByteMs }) => firstByteMs));
    ok(worst < 60_000, `the longest wait for a first byte: ${worst} ms`);
    deepEqual(
      outcomes.filter(({ status }) => status !== 200),
      [],
    );
    const lines = run
      .output()
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const hung = lines.filter(({ msg }) => msg === 'worker hung');
    equal(hung.length, 1);
    const waiting = Number(/^(\d+) requests/.exec(String(hung[0]!['inFlight']))![1]);
    const began = Number(/(\d+) responses/.exec(String(hung[0]!['inFlight']))![1]);
    const sentAgain = new Set(lines.filter(({ failure }) => failure === 'hung').map(({ requestId }) => requestId));
    equal(sentAgain.size, waiting);
    const cut = outcomes.filter(({ isCut }) => isCut).map(({ id }) => id);
    equal(cut.length, began);
    for (const id of cut)
      ok(
        lines.some(({ requestId, level }) => requestId === id && level === 'warning'),
        `${id} is logged`,
      );
    t.diagnostic(
      `${outcomes.length} requests; ${waiting} sent again, ${began} cut; longest wait ${(worst / 1000).toFixed(1)} s`,
    );
  },
);
