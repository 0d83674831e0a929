import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { splitList } from '../config/load.ts';
import { ENGINE_HOST } from './engine-command.ts';

const LIST_TIMEOUT_MS = 10_000;

/** The GPUs to distribute: `given`, or those visible to this process; null if not known. */
export async function findGpus(given: string | undefined, env: NodeJS.ProcessEnv): Promise<string[] | null> {
  const named = given ?? env['CUDA_VISIBLE_DEVICES'];
  if (named !== undefined) return splitList([named]);
  try {
    const { stdout } = await promisify(execFile)('nvidia-smi', ['-L'], { timeout: LIST_TIMEOUT_MS });
    return Array.from(stdout.matchAll(/^GPU (\d+):/gm), ([, index]) => index!);
  } catch {
    return null;
  }
}

/**
 * The first `count` free ports from `base` on. Throws if there are too few.
 *
 * @param step from one possible port to the next
 * @param reserved ports that the router will open
 */
export async function findPorts(
  base: number,
  count: number,
  { step = 1, reserved = [] }: { step?: number; reserved?: readonly number[] } = {},
): Promise<number[]> {
  const found: number[] = [];
  for (let port = base; found.length < count; port += step) {
    if (port > 65_535) throw new Error(`no ${count} free ports from ${base} on: give another --engine-base-port.`);
    if (!reserved.includes(port) && (await isFree(port))) found.push(port);
  }
  return found;
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, ENGINE_HOST);
  try {
    await once(server, 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}
