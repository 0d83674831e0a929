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
    'Additional control paths that go to every worker and need the admin key; a * at the end matches anything.',
    { needsRestart: true },
  ),
  singleWorkerPaths: option(
    '<paths...>',
    paths,
    'Paths that go to one worker although the table of control paths sends them to every worker.',
    { needsRestart: true },
  ),
} as const;
