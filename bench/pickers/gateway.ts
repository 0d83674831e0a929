// Envoy with a picker, ready to serve.
import { setTimeout as sleep } from 'node:timers/promises';
import { startEnvoy } from '../../examples/envoy/stack.ts';
import { binary } from '../../router/test/harness/built.ts';
import type { Child } from '../child.ts';
import { type Contender, gatewayConfig } from './contenders.ts';
import type { Pool } from './pool.ts';

export interface Gateway {
  readonly url: string;
  readonly envoy: Child;
  readonly envoyVersion: string;
  /** null: Envoy chooses. */
  readonly picker: Child | null;
  stop(): Promise<void>;
}

interface Fleet {
  readonly urls: readonly string[];
  readonly folder: string;
  readonly pool: Pool | null;
}

const READY_MS = 60_000;
const probe = '{"model":"sim","messages":[{"role":"user","content":"id=0000000000;n=00000;ready?"}],"max_tokens":1}';

/** Resolves when it has answered a request. */
export async function startGateway(contender: Contender, fleet: Fleet): Promise<Gateway> {
  const started = await contender.picker?.start(fleet);
  const envoy = await startEnvoy({
    program: binary('envoy', 'envoy'),
    picker: started?.grpcPort ?? 0,
    folder: fleet.folder,
    edit: gatewayConfig(contender, fleet.urls),
  });
  const gateway: Gateway = {
    url: envoy.url,
    envoy: envoy.child,
    envoyVersion: envoy.version,
    picker: started?.child ?? null,
    async stop() {
      await envoy.child.stop();
      await started?.child.stop();
    },
  };
  const deadline = performance.now() + READY_MS;
  let complaint = '';
  while (performance.now() < deadline && started?.child.hasEnded() !== true) {
    complaint = await refusal(envoy.url);
    if (complaint === '') return gateway;
    await sleep(100);
  }
  const words = started?.child.finalEvent() ?? '';
  await gateway.stop();
  throw new Error(`${contender.name} answers no request (${complaint}):\n${words}`);
}

/** Why a request is not answered; '' if it is. */
async function refusal(url: string): Promise<string> {
  try {
    const headers = { 'content-type': 'application/json', 'x-session-id': 'probe', 'x-turnout-session-end': '1' };
    const signal = AbortSignal.timeout(5_000);
    const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: probe, signal });
    const text = await answer.text();
    return answer.status === 200 ? '' : `${answer.status} ${text.slice(0, 200)}`;
  } catch (error) {
    return (error as Error).message;
  }
}
