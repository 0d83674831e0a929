import { z } from 'zod';
import { inGroup } from './option.ts';

const option = inGroup('Fleet control');

const paths = z
  .array(z.string().regex(/^\/[^?#\s*]*\*?$/, 'give paths as /like_this, or /like_* for all that begin so'))
  .default([]);

export const controlOptions = {
  broadcastPaths: option(
    '<paths...>',
    paths,
    'Paths that go to every worker, and steer, beside those of the table of controls; a * at the end stands for anything.',
    { needsRestart: true },
  ),
  singleWorkerPaths: option(
    '<paths...>',
    paths,
    'Paths that go to one worker, as requests do, although the table of controls sends them to every one.',
    { needsRestart: true },
  ),
} as const;
