import { heldForText, reasonText, waitText } from '../choose/reason-text.ts';
import type { Exchange, Failure } from '../exchange.ts';
import type { ExchangeRow } from '../observe/exchange-rows.ts';
import type { requestInFlight } from './overview.ts';

const failureTexts: Readonly<Record<Failure, string>> = {
  connect: 'no connection could be opened',
  stale: 'the engine had closed the idle connection',
  reset: 'the connection broke before the response began',
  cut_head: 'the connection broke inside the head of the response',
  bad_answer: 'the response was not valid HTTP',
  status: 'the engine responded with an error status',
  first_byte_timeout: 'no response began in time (--first-byte-timeout-secs)',
  hung: 'the engine hung before the response began',
  cut: 'the response was truncated, and another worker continued it',
  cut_hung: 'the engine hung during the response, and another worker continued it',
  aborted: 'the engine aborted the generation for a weight swap, and it was continued',
  no_handover: 'the prefill engine returned nothing that a decode engine can continue',
};

/** What happened to a finished exchange, in sentences. */
export function storyOf(row: ExchangeRow): string[] {
  const { worker, error, detail } = row;
  return [
    ...(row.queued_ms > 0 ? [`It was queued for ${secs(row.queued_ms)} before it was admitted.`] : []),
    ...(row.held_for === null
      ? []
      : [`It was held for ${secs(row.held_ms)}: it waited for ${heldForText(row.held_for)}.`]),
    ...failuresOf(row.failures),
    ...(worker === null || row.reason === null ? [] : [choiceOf(worker, row.reason, row.from, row.policy)]),
    ...endOf(row),
    ...(error === null ? [] : [`The router's error is ${error}: ${detail}`]),
  ];
}

/** What happened so far to an exchange in flight, and what it waits for. */
export function storyInFlight(x: Exchange, row: ReturnType<typeof requestInFlight>): string[] {
  const { worker, waiting_secs: waited, last_byte_secs: silent } = row;
  const at = worker ?? 'its worker';
  const waitsFor = x.waiting === null ? '' : waitText(x.waiting);
  const now: Readonly<Record<typeof row.phase, string>> = {
    receiving: 'It waits for the rest of its body, a plugin, or the delay before a retry.',
    queued: `It has been queued for ${waited} s: it waits for ${waitsFor}.`,
    held: `It has been held for ${waited} s: it waits for ${waitsFor}.`,
    waiting_for_first_byte: `It waits for the first byte of the response of ${at}.`,
    streaming: `It receives the response of ${at}; the last byte came ${silent} s ago.`,
  };
  return [
    ...failuresOf(x.failures.map((failed) => ({ worker: failed.worker.url, failure: failed.failure }))),
    ...(worker === null || x.waiting !== null ? [] : [choiceOf(worker, reasonText(x), x.move?.from ?? null, null)]),
    now[row.phase],
  ];
}

const failuresOf = (failures: ExchangeRow['failures']): string[] =>
  failures.map(({ worker, failure }, i) => `Attempt ${i + 1} failed at ${worker}: ${failureTexts[failure]}.`);

/** @param reason as `reasonText` */
function choiceOf(worker: string, reason: string, from: string | null, policy: string | null): string {
  const chose = `${policy === null ? 'the policy' : policy} chose ${worker}`;
  if (reason === 'home') return `It stayed at ${worker}, where the session was.`;
  if (reason === 'new') return `It is the first request of its session: ${chose}.`;
  if (reason === 'retry') return `After that, ${chose}.`;
  if (reason === 'target') return `Its client named the worker ${worker} (x-turnout-worker).`;
  if (reason.startsWith('moved: ')) {
    return `Its session moved from ${from} to ${worker}. The reason: ${reason.slice('moved: '.length)}.`;
  }
  return `It has no session: ${chose}.`;
}

function endOf({ outcome, status, ms, first_byte_ms: firstByteMs, response_bytes: bytes }: ExchangeRow): string[] {
  const times = `${secs(ms)}${firstByteMs === null ? '' : `, the first byte after ${secs(firstByteMs)}`}`;
  if (outcome === 'complete') return [`The response was complete after ${times}, with status ${status}.`];
  if (outcome === 'cut') return [`The response was truncated after ${times}, with ${bytes} bytes of its body.`];
  if (outcome === 'client_left') return [`Its client left after ${times}.`];
  return [`The router refused it after ${secs(ms)}, with status ${status}.`];
}

const secs = (ms: number): string =>
  ms < 1000 ? `${Number(ms.toPrecision(2))} ms` : `${(ms / 1000).toPrecision(3)} s`;
