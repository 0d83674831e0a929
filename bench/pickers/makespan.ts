// A batch of agents' sessions on simulated engines, placed by each picker: the scene of bench/rollout.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { cpuMicroseconds, machineMicroseconds, processTree, readCpu } from '../proc.ts';
import { type Played, play } from '../rollout/clients.ts';
import { startEngines, workerUrls } from '../rollout/fleet.ts';
import { type Scene, batchScene } from '../rollout/scene.ts';
import type { System } from '../rollout/system.ts';
import type { Contender } from './contenders.ts';
import { startGateway } from './gateway.ts';
import { type Pool, startPool } from './pool.ts';

const FIRST_PORT = 21_851;

export interface MakespanResult extends Played {
  readonly contender: Contender;
  readonly scene: Scene;
  readonly preemptions: number;
  readonly realSeconds: number;
  readonly envoyVersion: string;
  /** Cores that all other processes of the machine used. */
  readonly otherCores: number;
}

interface Settings {
  readonly folder: string;
  readonly say: (line: string) => void;
}

/** One after the other, each with new engines. */
export async function measureMakespans(
  contenders: readonly Contender[],
  { folder, say }: Settings,
): Promise<MakespanResult[]> {
  const scene = batchScene(Infinity);
  const urls = workerUrls(FIRST_PORT);
  let pool: Pool | null = null;
  const results: MakespanResult[] = [];
  try {
    if (contenders.some(({ picker }) => picker?.program === 'lwepp')) {
      say('starting a Kubernetes API server for lwepp');
      pool = await startPool(urls);
    }
    for (const contender of contenders) {
      const own = join(folder, contender.name);
      mkdirSync(own);
      const result = await played(contender, scene, own, pool);
      results.push(result);
      const { makespan, hitShare, realSeconds } = result;
      say(
        `${contender.name}: ${makespan.toFixed(1)} s, ${(100 * hitShare).toFixed(1)} % hits, took ${realSeconds.toFixed(0)} s`,
      );
    }
    return results;
  } finally {
    pool?.stop();
  }
}

async function played(contender: Contender, scene: Scene, folder: string, pool: Pool | null): Promise<MakespanResult> {
  const engines = await startEngines(scene, FIRST_PORT);
  try {
    const gateway = await startGateway(contender, { urls: workerUrls(FIRST_PORT), folder, pool });
    try {
      const system: System = {
        child: gateway.envoy,
        url: gateway.url,
        headers: (session, isLastTurn) => ({
          'x-session-id': session,
          ...(isLastTurn ? { 'x-turnout-session-end': '1' } : {}),
        }),
        fields: () => '',
        release: () => null,
        heldMs: async () => 0,
      };
      const pids = [gateway.envoy, gateway.picker].flatMap((child) => (child === null ? [] : processTree(child.pid)));
      pids.push(...engines.map(({ pid }) => pid), process.pid);
      const before = { own: readCpu(pids), machine: machineMicroseconds(), ms: performance.now() };
      const outcome = await play({ system, scene, batch: '', onTurn: () => {} });
      const realUs = (performance.now() - before.ms) * 1000;
      const stats = await Promise.all(engines.map((engine) => engine.stats()));
      const ownUs = cpuMicroseconds(before.own, readCpu(pids));
      return {
        ...outcome,
        contender,
        scene,
        preemptions: stats.reduce((sum, { preemptions }) => sum + preemptions, 0),
        realSeconds: realUs / 1e6,
        envoyVersion: gateway.envoyVersion,
        otherCores: Math.max(0, machineMicroseconds() - before.machine - ownUs) / realUs,
      };
    } finally {
      await gateway.stop();
    }
  } finally {
    await Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
  }
}
