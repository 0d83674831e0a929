// The scene over sockets: clients here, router and engines as processes, and their CPU time.
import { cpuMicroseconds, machineMicroseconds, readCpu } from '../proc.ts';
import { play } from './clients.ts';
import { startEngines, startRouter, workerUrls } from './fleet.ts';
import type { Contender, Scene } from './scene.ts';
import type { Outcome } from './virtual.ts';

/** CPU time per real time: 1 is a whole core. */
export interface Load {
  readonly clients: number;
  readonly router: number;
  /** All of them together. */
  readonly engines: number;
  /** Other processes of the machine. */
  readonly others: number;
}

export interface SocketOutcome extends Outcome {
  readonly turns: number;
  readonly realSeconds: number;
  readonly load: Load;
}

export interface SocketRun {
  readonly scene: Scene;
  readonly contender: Contender;
  /** Prefix of session ids, so that batches do not share sessions. */
  readonly batch: string;
  readonly firstPort: number;
  /** The routers' data folder. */
  readonly folder: string;
  readonly onTurn: (turns: number) => void;
}

/** Engines and router are new for each run; the state of a policy from an earlier batch is in the folder. */
export async function runOverSockets({
  scene,
  contender,
  batch,
  firstPort,
  folder,
  onTurn,
}: SocketRun): Promise<SocketOutcome> {
  const engines = await startEngines(scene.engine, firstPort);
  const enginePids = engines.map(({ pid }) => pid);
  try {
    const { child, url } = await startRouter(contender.policy, workerUrls(firstPort), folder);
    try {
      const before = { engines: readCpu(enginePids), router: readCpu([child.pid]), own: process.cpuUsage() };
      const machineBefore = machineMicroseconds();
      const startedMs = performance.now();
      const played = await play(url, scene.trace, batch, onTurn);
      const realUs = (performance.now() - startedMs) * 1000;
      const own = process.cpuUsage(before.own);
      const us = {
        clients: own.user + own.system,
        router: cpuMicroseconds(before.router, readCpu([child.pid])),
        engines: cpuMicroseconds(before.engines, readCpu(enginePids)),
      };
      const others = machineMicroseconds() - machineBefore - us.clients - us.router - us.engines;
      const stats = await Promise.all(engines.map((engine) => engine.stats()));
      return {
        makespan: played.makespan,
        hitShare: played.cachedTokens / played.promptTokens,
        preemptions: stats.reduce((sum, { preemptions }) => sum + preemptions, 0),
        turns: played.turns,
        realSeconds: realUs / 1e6,
        load: {
          clients: us.clients / realUs,
          router: us.router / realUs,
          engines: us.engines / realUs,
          others: Math.max(0, others) / realUs,
        },
      };
    } finally {
      await child.stop();
    }
  } finally {
    await Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
  }
}
