import { LIMIT_MS } from '../../src/recorder/tap/stored-first.ts';
import { preloaded } from '../chaos/router-process.ts';

/**
 * The environment of a router process that holds the ends of responses until their turns are stored, however long that takes: a kill (SIGKILL)
 * loses none of them. Without it, it sends them after `LIMIT_MS`.
 */
export const withHeldEnds: NodeJS.ProcessEnv = preloaded(`
  import { isMainThread } from 'node:worker_threads';
  const { setTimeout } = globalThis;
  // A timer of a TimeLimit: others have that time too.
  const isLimit = (run, ms) => ms === ${LIMIT_MS} && String(run).includes('setImmediate');
  if (isMainThread)
    globalThis.setTimeout = (run, ms, ...more) => setTimeout(run, isLimit(run, ms) ? 2 ** 30 : ms, ...more);
`);
