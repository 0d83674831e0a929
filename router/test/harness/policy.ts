import assert from 'node:assert/strict';
import type { PolicyContext } from '../../src/choose/policy.ts';
import { memoryStore } from '../../src/choose/state.ts';
import { readPromptIds } from '../../src/classify/prompt-ids.ts';
import { loadConfig } from '../../src/config/load.ts';
import type { Config } from '../../src/config/options.ts';
import { Exchange, type Prompt } from '../../src/exchange.ts';
import type { ResultListener } from '../../src/wire/result.ts';
import { Fleet } from '../../src/fleet/fleet.ts';
import type { Worker } from '../../src/fleet/worker.ts';
import { seededRandom } from '../../src/kit/rng.ts';
import { RequestBody, RetryBudget } from '../../src/wire/request-body.ts';
import { RequestHead } from '../../src/wire/request-head.ts';
import type { Sink } from '../../src/wire/sink.ts';

/** A fleet of workers that nobody ever connects to. */
export function fleetOf(...urls: readonly string[]): { fleet: Fleet; workers: Worker[] } {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  return { fleet, workers: urls.map((url) => fleet.add(url) as Worker) };
}

/** `count` workers named http://w0:1, http://w1:1, … */
export const fleetOfSize = (count: number): ReturnType<typeof fleetOf> =>
  fleetOf(...Array.from({ length: count }, (_, i) => `http://w${i}:1`));

/** A policy's surroundings with time in the test's hand: `clock.nowMs`. */
export function policyContext(
  fleet: Fleet,
  options: Partial<Config> = {},
  rest: Partial<PolicyContext> = {},
): PolicyContext & { clock: { nowMs: number } } {
  const clock = { nowMs: 0 };
  const store = memoryStore();
  return {
    fleet,
    random: seededRandom(1),
    options: { ...loadConfig({}, {}, undefined), ...options },
    nowMs: () => clock.nowMs,
    state: (name) => store.open(name),
    retryHeld: () => {},
    trace: null,
    warn: () => {},
    ...rest,
    clock,
  };
}

/** What is known of an exchange when a policy is asked. */
export interface Known {
  readonly session?: string;
  readonly tenant?: string;
  readonly group?: string;
  readonly model?: string;
  readonly prompt?: Prompt;
  readonly isLastTurn?: boolean;
  readonly timeoutMs?: number;
  /** Header lines, for tests that read them; without line ends. */
  readonly headers?: readonly string[];
  readonly body?: string;
}

/** An exchange as classify leaves it, without a socket. */
export function exchangeOf(known: Known = {}): Exchange {
  const lines = ['POST / HTTP/1.1', 'host: h', ...(known.headers ?? []), '', ''];
  const bytes = Buffer.from(lines.join('\r\n'));
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0);
  const body = new RequestBody(new RetryBudget(1e9), () => {});
  if (known.body !== undefined) body.push(Buffer.from(known.body));
  body.finish();
  const x = new Exchange({} as ResultListener<Exchange>, head, body, {} as Sink, 0);
  const { session, tenant } = known;
  if (session !== undefined) x.key = { kind: 'session', value: session, source: 'header:x-session-id' };
  else if (tenant !== undefined) x.key = { kind: 'tenant', value: tenant, source: 'header:x-user-id' };
  x.group = known.group ?? '';
  x.model = known.model ?? '';
  x.prompt = known.prompt ?? null;
  x.promptIds = x.prompt && readPromptIds(body, x.prompt.field);
  x.bodyBytes = Math.max(0, head.contentLength, body.bytes);
  x.isLastTurn = known.isLastTurn ?? false;
  x.timeoutMs = known.timeoutMs ?? null;
  return x;
}
