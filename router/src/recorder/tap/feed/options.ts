import * as z from 'zod';
import { MAX_GROUP_SIZE, memberFlags } from '../../shared/feed.ts';

const count = z.number().int().min(1);

/** The options of the plugin `feed`. */
export const feedOptions = z.strictObject({
  name: z
    .string()
    .regex(/^[\w.-]{1,64}$/, 'has 1 to 64 letters, digits, dots, underscores or dashes')
    .default('default')
    .describe('Name of the feed in the store. Routers that share a Valkey need different names.'),
  groupSize: count
    .max(MAX_GROUP_SIZE)
    .nullable()
    .default(null)
    .describe('Members of a group whose requests do not say it.'),
  first: count.nullable().default(null).describe('A group is ready when so many members are complete. null: all.'),
  deadlineSecs: z
    .number()
    .min(0)
    .default(0)
    .describe('Seconds after its first request at which a group does not wait any longer. 0: no deadline.'),
  rest: z
    .enum(['cancel', 'keep'])
    .default('cancel')
    .describe('Sessions that their group does not wait for: stopped at the engines, or left alone.'),
  needsReward: z.boolean().default(false).describe('A member is complete when it has ended and has a reward.'),
  minMembers: count
    .nullable()
    .default(null)
    .describe('A group with fewer members left after the filters is dropped. null: all that it waited for.'),
  dropConstantReward: z.boolean().default(false).describe('Drop groups whose members have all the same reward.'),
  maxLag: z
    .number()
    .int()
    .min(0)
    .nullable()
    .default(null)
    .describe('Drop members with a token whose weights are more versions old. null: any age.'),
  dropFlags: z
    .array(z.enum(memberFlags))
    .default(['not_exact', 'unknown_logprobs', 'ambiguous'])
    .describe('Drop members with one of these flags.'),
  maxTokens: count.nullable().default(null).describe('Drop members with a longer trajectory, in tokens.'),
  stepGroups: count
    .nullable()
    .default(null)
    .describe('Groups of a training step, for "wanted" and the limit of pending groups.'),
  maxPendingGroups: count
    .nullable()
    .default(null)
    .describe(
      'Groups of each API key that may be open, ready or with a consumer. null: (maxLag + 1) × stepGroups, if both are set.',
    ),
  whenFull: z
    .enum(['refuse', 'hold'])
    .default('refuse')
    .describe('What a request gets that would begin a group too many: 429 feed_full, or it waits.'),
  leaseSecs: z
    .number()
    .min(1)
    .max(604_800)
    .default(600)
    .describe('Seconds after which a group that its consumer has not acked is delivered again.'),
});
