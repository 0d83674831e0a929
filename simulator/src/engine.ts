/** A simulated engine in this process. */

import type { AddressInfo, Socket } from 'node:net';
import { vllmAdapterRoutes } from './api/adapters.ts';
import { commonRoutes } from './api/control-common.ts';
import { sglangRoutes } from './api/control-sglang.ts';
import { vllmRoutes } from './api/control-vllm.ts';
import { Core, type SimStats } from './model/core.ts';
import { resolveSimOptions, type SimOptions } from './sim-options.ts';
import { createEngineServer } from './api/server.ts';
import { resetSocket } from '../../router/src/wire/reset-socket.ts';

export interface SimEngine {
  url: string;
  port: number;
  /** The pid of this process. */
  pid: number;
  core: Core;
  stats(): SimStats;
  /** Stops listening and closes all sockets. */
  close(): Promise<void>;
  /** As in a crash: every socket is reset. */
  kill(): Promise<void>;
}

export async function startSimEngine(given: Partial<SimOptions> = {}): Promise<SimEngine> {
  const options = resolveSimOptions(given);
  const core = new Core(options);
  const server = createEngineServer(core, {
    ...commonRoutes,
    ...(options.kind === 'vllm' ? vllmRoutes : sglangRoutes),
    ...(options.kind === 'vllm' && options.loraLoading ? vllmAdapterRoutes : {}),
  });
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    socket.setNoDelay(true);
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, options.host, resolve);
  });
  const { port } = server.address() as AddressInfo;

  const end = async (drop: (socket: Socket) => void): Promise<void> => {
    core.stop();
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of sockets) drop(socket);
    await closed;
  };
  core.faults.die = () => void end(resetSocket);
  return {
    url: `http://${options.host.includes(':') ? `[${options.host}]` : options.host}:${port}`,
    port,
    pid: process.pid,
    core,
    stats: () => core.stats(),
    close: () => end((socket) => socket.destroy()),
    kill: () => end(resetSocket),
  };
}
