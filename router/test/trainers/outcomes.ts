import { call } from '../real/call.ts';

const COUNTED = /^turnout_(?:requests_total\{outcome="(\w+)"\}|(errors|retries)_total\{[^}]*\}) (\d+)$/gm;

/** Requests of a router by outcome, its errors and its retries; only what is not zero. */
export async function outcomesOf(router: string): Promise<Record<string, number>> {
  const metrics = (await call(router, '/metrics')).body;
  const counts: Record<string, number> = {};
  for (const [, outcome, kind, count] of metrics.matchAll(COUNTED)) {
    const name = outcome ?? kind!;
    if (Number(count) > 0) counts[name] = (counts[name] ?? 0) + Number(count);
  }
  return counts;
}
