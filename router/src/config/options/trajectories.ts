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
    count.min(65_536).default(268_435_456),
    'How much memory they may take where they are kept in memory; whole sessions go then, the oldest first.',
    { needsRestart: true },
  ),
  storeMaxAgeSecs: option(
    '<secs>',
    z.number().min(0).default(0),
    'Sessions whose last turn began longer ago are removed from the store, their files too. 0: all are kept.',
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
