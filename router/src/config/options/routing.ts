import { z } from 'zod';
import { count, headerName, inGroup, port, secs } from './option.ts';
import { isPath, policyName, policyNames } from './policy-names.ts';

const policy = z
  .string()
  .transform(policyName)
  .refine((name) => isPath(name) || (policyNames as readonly string[]).includes(name), {
    message: `no such policy. Choose ${policyNames.join(', ')}, or give the path of a module (./my-policy.ts)`,
  });

/** Headers that name a session, in the order in which they are believed: SGLang, Fireworks (two), vLLM and SkyRL. */
const sessionHeaders = ['x-smg-routing-key', 'x-multi-turn-session-id', 'x-session-affinity', 'x-session-id'];

/** Names of the orders in which routing keys are looked for; `classify/keys.ts` has one for each. */
const keyOrders = ['turnout', 'vllm-router'] as const;
export type KeyOrder = (typeof keyOrders)[number];

const option = inGroup('Routing');

export const routingOptions = {
  policy: option(
    '<name>',
    policy.default('rollout'),
    `How a worker is chosen: ${policyNames.join(', ')}, or the path of a module of your own.`,
    { isCommon: true },
  ),
  prefillPolicy: option(
    '<name>',
    policy.optional(),
    'How the prefill engine of a pair is chosen, in place of --policy.',
  ),
  decodePolicy: option('<name>', policy.optional(), 'How the decode engine of a pair is chosen, in place of --policy.'),
  modelPolicy: option(
    '<model=name...>',
    z.array(z.string().regex(/^.+=.+$/, 'expected model=policy')).default([]),
    'Other policies for the requests that name these models.',
  ),
  sessionHeaders: option(
    '<names...>',
    z.array(headerName).default([...sessionHeaders]),
    'Headers that name a session, in the order in which they are believed.',
    { isCommon: true },
  ),
  keyOrder: option(
    '<order>',
    z.enum(keyOrders).default('turnout'),
    'Where the key that steers placement is looked for: turnout (sessions first, wherever they stand) or vllm-router (that router’s eleven places).',
  ),
  hashLoadFactor: option(
    '<factor>',
    z.number().min(0).max(100).optional(),
    'consistent_hash, prefix_hash: no worker gets more than this many times its share of the requests under way; the next one on the ring does. 0: no bound. Default: none for consistent_hash, 1.25 for prefix_hash.',
  ),
  prefixHashTokens: option(
    '<count>',
    count.min(16).default(256),
    'prefix_hash: so much of the prompt steers it, in tokens (ids, or 4 bytes of text).',
  ),
  engineLoadIntervalSecs: option(
    '<secs>',
    secs.default(0),
    'power_of_two: how often engines are asked how many requests they have, so that those of other routers count too. 0: never, the own ones count.',
  ),
  sessionTtlSecs: option(
    '<secs>',
    secs.min(1).default(7_200),
    'sticky_least_loaded: a session without a request for so long has ended.',
  ),
  assignmentMode: option(
    '<mode>',
    z.enum(['random', 'min_load', 'min_group']).default('random'),
    'manual: how a new key gets its worker: random, min_load (fewest requests under way) or min_group (fewest keys).',
  ),
  maxIdleSecs: option(
    '<secs>',
    secs.min(1).default(14_400),
    'manual: a key without a request for so long is forgotten.',
  ),
  cacheThreshold: option(
    '<share>',
    z.number().min(0).max(1).default(0.5),
    'cache_aware: the share of a prompt that a worker must have seen before it is preferred for it.',
  ),
  balanceAbsThreshold: option(
    '<count>',
    count.default(32),
    'cache_aware, bucket: the least loaded worker is taken when the most loaded one has more than this many requests more, and more than --balance-rel-threshold times as many.',
  ),
  balanceRelThreshold: option(
    '<factor>',
    z.number().min(1).default(1.1),
    'cache_aware, bucket: see --balance-abs-threshold; both must be exceeded.',
  ),
  evictionIntervalSecs: option(
    '<secs>',
    secs.optional(),
    'Taken for the sake of other routers’ command lines, without effect: what is remembered of prompts is kept within --max-tree-size at every request.',
  ),
  maxTreeSize: option(
    '<blocks>',
    count.min(1_024).default(1_048_576),
    'cache_aware, rollout: blocks of prompts that are remembered, of all workers together; the least recently used go first. A block is 64 bytes in the first 4 KB of a prompt, 512 bytes after.',
  ),
  bucketAdjustIntervalSecs: option(
    '<secs>',
    secs.min(0.1).default(5),
    'bucket: how often the bands of prompt lengths are cut anew.',
  ),
  kvEventEndpoints: option(
    '<pairs...>',
    z
      .array(
        z.string().regex(/=(tcp|ipc):\/\//, 'expected worker=endpoint, for example http://gpu-1:8000=tcp://gpu-1:5557'),
      )
      .default([]),
    'kv_aware: where workers tell of their caches, http://worker:port=tcp://host:port each; replay=tcp://host:port after one of them: where it gives missed events again.',
  ),
  kvEventPort: option(
    '<port>',
    port.min(1).default(5_557),
    'kv_aware: where all other workers tell of their caches, on their own host; a DP rank is added to it.',
  ),
  kvReplayPort: option(
    '<port>',
    port.min(1).optional(),
    'kv_aware: where they give missed events again; a DP rank is added to it. Without it a lost connection loses what was known of the cache.',
  ),
  residencyMaxWaitSecs: option(
    '<secs>',
    secs.default(3_600),
    'rollout: how long a session may wait for room in an engine when the open ones want more context than the fleet can hold; then it is placed anyway. 0: nobody waits.',
  ),
  dataDir: option(
    '<directory>',
    z.string().min(1).optional(),
    'Where policies keep what they must know after a restart (the workers of sessions, learned lengths), and captured trajectories are kept. Without it both start anew.',
    { needsRestart: true, isCommon: true },
  ),
  streamCoalesceMs: option(
    '<ms>',
    count.max(10_000).default(0),
    'Read each event stream at most this often after its first events: less CPU per token, more delay. 0: at once.',
    { needsRestart: true },
  ),
} as const;
