import * as z from 'zod';
import { count, flag, inGroup } from './option.ts';

const option = inGroup('Trajectories');

export const trajectoriesOptions = {
  tokenizerPath: option(
    '<path>',
    z.string().min(1).optional(),
    "The model's tokenizer.json or its folder. Exact tokens need it.",
    { needsRestart: true, isCommon: true },
  ),
  radixMaxCacheSize: option(
    '<nodes>',
    count.min(1).optional(),
    'A limit for the number of nodes in the trees of tokens, about two a turn. Unset: --radix-max-bytes alone limits them.',
    { needsRestart: true },
  ),
  radixMaxBytes: option(
    '<bytes>',
    count.min(65_536).optional(),
    'Memory that the trees of tokens may take; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Turns of the sessions used longest ago are evicted first.',
    { needsRestart: true },
  ),
  radixGcThresholdK: option(
    '<versions>',
    count.min(1).default(5),
    'Tree nodes that were only used with weights this many versions older than the newest are removed once they were not used for an hour.',
    { needsRestart: true },
  ),

  store: option(
    '<where>',
    z
      .string()
      .regex(/^(memory|sqlite|rediss?:\/\/.+)$/, 'is memory, sqlite or redis://…')
      .optional(),
    'Where captured turns are stored: memory, sqlite (a file in --data-dir) or redis://… (Redis or Valkey, shared by several routers). Default: sqlite with --data-dir, else memory.',
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
    'Sessions whose last turn began longer ago are deleted from the store, with their files. 0: never.',
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
    'Capture plain /v1/chat/completions requests that carry a session key as chat sessions with exact tokens. Loads the plugin chat-sessions; needs --tokenizer-path.',
    { needsRestart: true },
  ),
  captureBodies: option(
    '',
    flag,
    'Also store the requests and responses of captured calls that are not chats, for turnout replay. Those of chats are always stored.',
    { needsRestart: true },
  ),
  captureRequired: option(
    '',
    flag,
    'Refuse requests that should be captured (503) while turns cannot be stored. Off: such turns are dropped and counted.',
    { needsRestart: true },
  ),
} as const;
