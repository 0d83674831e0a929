import { z } from 'zod';
import { count, flag, inGroup } from './option.ts';

const option = inGroup('Trajectories');

export const trajectoriesOptions = {
  store: option(
    '<where>',
    z
      .string()
      .regex(/^(memory|sqlite|rediss?:\/\/.+)$/, 'is memory, sqlite or redis://…')
      .optional(),
    'Where captured turns are kept: memory, sqlite (a file in --data-dir), or redis://… (Redis or Valkey, shared by several routers). Unsaid: sqlite with --data-dir, else memory.',
    { needsRestart: true },
  ),
  storeMemoryBytes: option(
    '<bytes>',
    count.min(65_536).optional(),
    'Memory that captured turns may take where they are kept in memory; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Whole sessions are evicted: first those that are over, then those used longest ago. With another store: memory of chat sessions, which are read from the store again.',
    { needsRestart: true },
  ),
  storeMaxAgeSecs: option(
    '<secs>',
    z.number().min(0).default(0),
    'Sessions whose last turn began longer ago are removed from the store, their files too. 0: all are kept.',
    { needsRestart: true },
  ),
  storeWait: option(
    '<when>',
    z.enum(['off', 'written', 'synced']).default('written'),
    'When the end of a captured answer (the last event of a choice, the last byte of a whole answer) is sent: written: once its turn is in the store, so that a kill of the router loses no turn whose end a client has; synced: once SQLite has also synced it to the disk, for power failures; off: at once. After 250 ms it is sent anyway, and counted. With the memory store: at once.',
    { needsRestart: true },
  ),
  captureChat: option(
    '',
    flag,
    'Plain /v1/chat/completions that carry a session key are chat sessions too: exact tokens, and kept turns. Turns the plugin chat-sessions on; wants --tokenizer-path.',
    { needsRestart: true },
  ),
  captureBodies: option(
    '',
    flag,
    'Keep requests and answers of captured turns as they passed, too: what turnout replay needs.',
    { needsRestart: true },
  ),
  captureRequired: option(
    '',
    flag,
    'Refuse requests that would be captured (503) while their turns can not be kept. Off: such turns are dropped and counted.',
    { needsRestart: true },
  ),
} as const;
