import { setTimeout as delay } from 'node:timers/promises';
import type { RouterChild } from './child.ts';
import { call } from './control.ts';

export type RouterState = Awaited<ReturnType<RouterChild['ask']>>;

/** Gauges that are 0 when nobody wants anything; a build that lacks one of them passes. */
const GAUGES = [
  /^(turnout_requests_in_flight) (\d+)$/gm,
  /^(turnout_held_requests\{[^}]*\}) (\d+)$/gm,
  /^(turnout_queued_requests(?:\{[^}]*\})?) (\d+)$/gm,
  /^(turnout_retry_buffer_bytes) (\d+)$/gm,
  /^(turnout_worker_in_flight\{[^}]*\}) (\d+)$/gm,
];

/** Compares a router at rest with itself before the run. */
export function judgeLeaks(before: RouterState, now: RouterState, metrics: string): string[] {
  const wrong: string[] = [];
  for (const [kind, count] of Object.entries(now.resources)) {
    const was = before.resources[kind] ?? 0;
    const which = kind.startsWith('TCPSocket') ? ` (${now.sockets.join(', ')})` : '';
    if (count > was && kind !== 'Immediate') wrong.push(`leaked: ${kind}: ${count}, ${was} before the run${which}`);
  }
  if (now.openFiles > before.openFiles)
    wrong.push(`leaked: ${now.openFiles} open files, ${before.openFiles} before the run`);
  if (now.exchanges !== 0) wrong.push(`leaked: ${now.exchanges} exchanges in flight`);
  if (now.inFlight !== 0) wrong.push(`leaked: ${now.inFlight} requests counted in flight`);
  for (const gauge of GAUGES) {
    for (const [, name, value] of metrics.matchAll(gauge))
      if (Number(value) !== 0) wrong.push(`leaked: ${name} is ${value}`);
  }
  return wrong;
}

/** Asks until nothing is left over, for as long as idle connections and checks may take to end. */
export async function untilAtRest(router: RouterChild, before: RouterState): Promise<string[]> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    // First the pause: the connection of the call below must be gone again.
    await delay(300);
    const now = await router.ask('report after gc');
    const wrong = judgeLeaks(before, now, await call(router.port, 'GET', '/metrics'));
    if (wrong.length === 0 || performance.now() > deadline) return wrong;
  }
}
