// The scene over sockets: clients here, router and engines as processes, and their CPU time.
import { cpuMicroseconds, machineMicroseconds, processTree, readCpu } from '../proc.ts';
import { play } from './clients.ts';
import { startEngines, startTurnout, workerUrls } from './fleet.ts';
import type { Contender, Scene } from './scene.ts';
import type { System } from './system.ts';
import { type ThunderAgent, startThunderAgent } from './thunder-agent.ts';
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
  readonly retries: number;
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
  readonly thunderAgent: ThunderAgent | null;
  readonly onTurn: (turns: number) => void;
}

function startSystem({
  scene,
  contender: { name, policy },
  folder,
  thunderAgent,
  firstPort,
}: SocketRun): Promise<System> {
  const urls = workerUrls(firstPort);
  if (policy !== null) return startTurnout({ policy, urls, folder });
  if (thunderAgent === null) throw new Error(`${name} needs --thunder-agent`);
  return startThunderAgent(thunderAgent, urls, scene.timeScale);
}

/** Engines and router are new for each run; the state of a policy from an earlier batch is in the folder. */
export async function runOverSockets(run: SocketRun): Promise<SocketOutcome> {
  const { scene, batch, firstPort, onTurn } = run;
  const engines = await startEngines(scene, firstPort);
  const enginePids = engines.map(({ pid }) => pid);
  try {
    const system = await startSystem(run);
    try {
      const routerPids = processTree(system.child.pid);
      const before = { engines: readCpu(enginePids), router: readCpu(routerPids), own: process.cpuUsage() };
      const machineBefore = machineMicroseconds();
      const startedMs = performance.now();
      const played = await play({ system, scene, batch, onTurn });
      const realUs = (performance.now() - startedMs) * 1000;
      const own = process.cpuUsage(before.own);
      const us = {
        clients: own.user + own.system,
        router: cpuMicroseconds(before.router, readCpu(routerPids)),
        engines: cpuMicroseconds(before.engines, readCpu(enginePids)),
      };
      const others = machineMicroseconds() - machineBefore - us.clients - us.router - us.engines;
      const stats = await Promise.all(engines.map((engine) => engine.stats()));
      return {
        ...played,
        preemptions: stats.reduce((sum, { preemptions }) => sum + preemptions, 0),
        realSeconds: realUs / 1e6,
        load: {
          clients: us.clients / realUs,
          router: us.router / realUs,
          engines: us.engines / realUs,
          others: Math.max(0, others) / realUs,
        },
      };
    } finally {
      await system.child.stop();
    }
  } finally {
    await Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
  }
}
