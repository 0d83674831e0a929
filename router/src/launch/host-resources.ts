import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { splitList } from '../config/load.ts';
import { cameWithin } from '../kit/came-within.ts';
import { ENGINE_HOST } from './engine-command.ts';

const LIST_TIMEOUT_MS = 10_000;

/** The GPUs to distribute: `given`, or those visible to this process; null if not known. Rejects if `nvidia-smi` hangs. */
export async function findGpus(
  given: string | undefined,
  env: NodeJS.ProcessEnv,
  withinMs = LIST_TIMEOUT_MS,
): Promise<string[] | null> {
  const named = given ?? env['CUDA_VISIBLE_DEVICES'];
  if (named !== undefined) return splitList([named]);
  const listing = promisify(execFile)('nvidia-smi', ['-L'], { env });
  try {
    if (await cameWithin(withinMs, listing))
      return Array.from((await listing).stdout.matchAll(/^GPU (\d+):/gm), ([, index]) => index!);
  } catch {
    return null;
  }
  // In a driver that hangs not even SIGKILL ends it: it is not waited for.
  const { child } = listing;
  child.kill('SIGKILL');
  child.unref();
  child.stdout?.destroy();
  child.stderr?.destroy();
  throw new Error(`nvidia-smi -L has not ended within ${withinMs / 1000} s: name the GPUs with --gpus.`);
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
