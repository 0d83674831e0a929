// The router of a chaos run, in a process of its own: its memory and its loop are nobody else's.
import { Socket } from 'node:net';
import { pino } from 'pino';
import { keepYoungGenerationSmall } from '../../../src/cli/serve.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { startRouter } from '../../../src/router.ts';
import { answerQuestions } from './process-report.ts';
import { type Sabotage, sabotage } from './sabotage.ts';

/** What the router counts, besides what every process can tell of itself. */
export interface RouterReport {
  readonly exchanges: number;
  readonly inFlight: number;
  /** Every connection: its ports and what it has done. */
  readonly sockets: readonly string[];
}

function openSockets(): string[] {
  // Undocumented, but the only one that tells which socket is left over, not just that one is.
  const { _getActiveHandles } = process as unknown as { _getActiveHandles(): unknown[] };
  return _getActiveHandles.call(process).flatMap((handle) => {
    if (!(handle instanceof Socket) || handle.bytesRead === undefined) return [];
    const { localPort, remotePort, readyState, bytesRead, bytesWritten } = handle;
    return [`${localPort} → ${remotePort} ${readyState}, ${bytesRead} read, ${bytesWritten} written`];
  });
}

const { options, fault } = JSON.parse(process.argv[2]!) as { options: Record<string, unknown>; fault: Sabotage | null };
keepYoungGenerationSmall();
const router = await startRouter(loadConfig(options, {}, undefined), { log: pino({ level: 'error' }) });
if (fault !== null) sabotage(router, fault);
answerQuestions(
  (): RouterReport => ({
    exchanges: router.pipeline.inFlight.size,
    sockets: openSockets(),
    inFlight: router.fleet.inFlight.reduce((sum, count) => sum + count, 0),
  }),
  () => router.close(1000),
);
process.send!({ ready: { url: router.url, metricsUrl: router.metricsUrl } });
