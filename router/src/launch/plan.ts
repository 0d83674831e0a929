import { type EngineCommand, ENGINE_HOST } from './engine-command.ts';
import { filled } from './placeholders.ts';

export interface EnginePlan {
  readonly index: number;
  readonly url: string;
  readonly port: number;
  readonly program: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

export interface Resources {
  readonly ports: readonly number[];
  /** The GPUs to distribute, as in CUDA_VISIBLE_DEVICES; null if not known: then engines use what they find. */
  readonly gpus: readonly string[] | null;
  /** 0: as many as the engine's arguments need. */
  readonly gpusPerEngine: number;
}

/** The router's settings, including keys, are not for engines. */
const isOwn = (name: string): boolean => name.startsWith('TURNOUT_');

/** Assigns ports and GPUs to engines. Throws an error with a message for the user: there are too few GPUs, a placeholder is wrong. */
export function plan(command: EngineCommand, resources: Resources, env: NodeJS.ProcessEnv): EnginePlan[] {
  const { ports } = resources;
  const inherited = Object.fromEntries(Object.entries(env).filter(([name]) => !isOwn(name)));
  const each = command.gpus === 0 ? 0 : resources.gpusPerEngine || command.gpus;
  const gpus = resources.gpus === null || resources.gpus.length === 0 ? null : resources.gpus;
  if (gpus !== null && ports.length * each > gpus.length) {
    throw new Error(
      `${ports.length} engines with ${each} GPU${each === 1 ? '' : 's'} each need ${ports.length * each}, and there are ${gpus.length} (${gpus.join(',')}): lower --dp-size, or name GPUs with --gpus.`,
    );
  }
  return ports.map((port, index) => ({
    index,
    port,
    url: `http://${ENGINE_HOST}:${port}`,
    program: filled(command.program, { index, port }),
    args: command.args(port).map((word) => filled(word, { index, port })),
    env: {
      ...inherited,
      ...command.env,
      ...(gpus === null || each === 0
        ? {}
        : { CUDA_VISIBLE_DEVICES: gpus.slice(index * each, (index + 1) * each).join(',') }),
    },
  }));
}
