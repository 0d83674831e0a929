import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { binary, whyNotBuilt } from '../harness/built.ts';
import { freePort } from '../harness/free-port.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const missing = await whyNotBuilt('envoy/install.sh', 'Envoy');
if (missing !== false) throw new Error(missing);

const folder = join(import.meta.dirname, '../../../examples/envoy');

export interface Modes {
  readonly request: 'NONE' | 'BUFFERED' | 'FULL_DUPLEX_STREAMED';
  readonly response: 'NONE' | 'STREAMED' | 'FULL_DUPLEX_STREAMED';
  readonly tls?: boolean;
  /** In the folder of the example. */
  readonly file?: 'envoy.yaml' | 'envoy-fallbacks.yaml';
  /** Changes the file. */
  readonly edit?: (text: string) => string;
  readonly engines?: number;
  readonly script?: SimOptions['script'];
}

/** A request that Envoy, or the picker through it, has answered. */
export interface Answered {
  readonly status: number;
  readonly text: string;
  /** The response broke off. */
  readonly isCut: boolean;
}

/** Engines, a picker, and the Envoy of an example in front of them. */
export async function startEnvoy(t: TestContext, modes: Modes, options: RouterOptions = {}) {
  const { request, response, tls = true, file = 'envoy.yaml', edit = (text) => text } = modes;
  const { engines: count = 3, script } = modes;
  /** What each engine has done to the end, as it says itself. */
  const log: { readonly engine: number; readonly call: string }[] = [];
  const engines: SimEngine[] = await Promise.all(
    Array.from({ length: count }, (_, engine) => {
      const onFinished = ({ requestId, finish }: FinishedRecord): void => {
        if (finish.type !== 'abort') log.push({ engine, call: /s\d+\.\d+/.exec(requestId)![0] });
      };
      return startSimEngine({ kind: 'sglang', timeScale: 0.01, onFinished, ...(script && { script }) });
    }),
  );
  t.after(() => Promise.all(engines.map((engine) => engine.close())));
  const pickerPort = await freePort();
  const startPicker = (more: RouterOptions = {}) =>
    startTestRouter(t, {
      workerUrls: engines.map(({ url }) => url),
      policy: 'rollout',
      pickerPort,
      pickerHealthPort: 0,
      pickerTls: tls ? 'on' : 'off',
      ...options,
      ...more,
    });
  const router = await startPicker();
  const [port, adminPort] = [await freePort(), await freePort()];
  const path = join(temporaryFolder(t), 'envoy.yaml');
  const endpoints = engines.map(
    ({ port: at }) =>
      `              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ${at} } } }\n`,
  );
  const text = edit(readFileSync(join(folder, file), 'utf8'))
    .replace(
      /(?<=port_value: )8001( .*\n) .*8002.*\n/,
      (_, rest: string) => `${engines[0]!.port}${rest}${endpoints.slice(1).join('')}`,
    )
    .replace('port_value: 10000', `port_value: ${port}`)
    .replace('port_value: 9901', `port_value: ${adminPort}`)
    .replace('port_value: 9002', `port_value: ${pickerPort}`)
    .replace('request_body_mode: FULL_DUPLEX_STREAMED', `request_body_mode: ${request}`)
    // Envoy wants trailers with full-duplex bodies only.
    .replace('request_trailer_mode: SEND', `request_trailer_mode: ${request.startsWith('FULL') ? 'SEND' : 'SKIP'}`)
    .replace('response_body_mode: NONE', `response_body_mode: ${response}`);
  writeFileSync(path, tls ? text : text.replace(/ {6}transport_socket:\n.*\n.*\n.*\n/, ''));
  const envoy = spawn(
    binary('envoy', 'envoy'),
    ['-c', path, '--concurrency', '1', '--log-level', 'error', '--use-dynamic-base-id'],
    {
      stdio: 'inherit',
    },
  );
  t.after(async () => {
    envoy.kill();
    if (envoy.exitCode === null && envoy.signalCode === null) await once(envoy, 'exit');
  });
  await until('Envoy is ready', async () => {
    const ready = await fetch(`http://127.0.0.1:${adminPort}/ready`).catch(() => null);
    return ready?.status === 200;
  });
  /** Resolves when the head of the response is here, with a function that reads the rest. */
  const begin = async (session: string, body: object): Promise<() => Promise<Answered>> => {
    // Where the gateway sends bodies, they name the session.
    const [header, field] = request === 'NONE' ? [{ 'x-session-id': session }, {}] : [{}, { user: session }];
    const response = await fetch(`http://127.0.0.1:${port}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...header },
      body: JSON.stringify({ prompt: 'of '.repeat(500), max_tokens: 20, ignore_eos: true, ...field, ...body }),
    });
    return async () => {
      const text = await response.text().catch(() => null);
      return { status: response.status, text: text ?? '', isCut: text === null };
    };
  };
  const ask = async (session: string, body: object): Promise<Answered> => (await begin(session, body))();
  /** Sessions side by side, turn after turn, every second one as a stream. */
  const run = async (sessions: number, turns: number): Promise<void> => {
    const one = async (session: number): Promise<void> => {
      for (let turn = 0; turn < turns; turn++) {
        const stream = (session + turn) % 2 === 0;
        const { status, text } = await ask(`s${session}`, { stream, rid: `s${session}.${turn}` });
        assert.equal(status, 200, text);
        assert.ok(
          stream ? text.endsWith('data: [DONE]\n\n') : text.includes('"finish_reason":"length"'),
          text.slice(-200),
        );
      }
    };
    await Promise.all(Array.from({ length: sessions }, (_, session) => one(session)));
    await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
  };
  return { router, engines, log, begin, ask, run, startPicker, port };
}

export type EnvoyScene = Awaited<ReturnType<typeof startEnvoy>>;
