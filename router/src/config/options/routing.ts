import * as z from 'zod';
import { suggestion } from '../nearest.ts';
import { count, headerName, inGroup, port, secs } from './option.ts';
import { isPath, policyName, policyNames } from './policy-names.ts';

const policy = z
  .string()
  .transform(policyName)
  .refine((name) => isPath(name) || (policyNames as readonly string[]).includes(name), {
    error: ({ input }) =>
      `no such policy${suggestion(String(input), policyNames) || '.'} Choose ${policyNames.join(', ')}, or give the path of a module (./my-policy.ts)`,
  });

/**
 * Headers that name a session, in order of preference: SGLang, Fireworks (two), vLLM and SkyRL, Codex (0.144 sends the first two, earlier
 * ones the next two), Claude Code (2.1.86), LiteLLM.
 */
const sessionHeaders = [
  'x-smg-routing-key',
  'x-multi-turn-session-id',
  'x-session-affinity',
  'x-session-id',
  'thread-id',
  'session-id',
  'session_id',
  'conversation_id',
  'x-claude-code-session-id',
  'x-litellm-session-id',
];

/**
 * Fields of a body that name a session, in order of preference: vLLM's router, SGLang's sessions (0.5.23: only the engine that opened one
 * knows it), OpenAI, Fireworks, SGLang, clients of Anthropic's and OpenAI's APIs.
 */
export const sessionFields = [
  'session_params.session_id',
  'session_params.id',
  'prompt_cache_key',
  'session_id',
  'routing_key',
  'metadata.session_id',
  'metadata.user_id',
  'user',
] as const;
export type SessionField = (typeof sessionFields)[number];

/** The orders in which routing keys are looked for: `keyOrders` in `classify/routing-keys.ts`. */
const keyOrders = ['turnout', 'vllm-router'] as const;
export type KeyOrder = (typeof keyOrders)[number];

const fireworksNames = ['off', 'inference', 'all'] as const;
export type FireworksNames = (typeof fireworksNames)[number];

const option = inGroup('Routing');

const control = inGroup('Fleet control');

const paths = z
  .array(z.string().regex(/^\/[^?#\s*]*\*?$/, 'give paths as /like_this, or /like_* for all that begin so'))
  .default([]);

export const routingOptions = {
  policy: option(
    '<name>',
    policy.default('rollout'),
    `Load balancing policy: ${policyNames.join(', ')}, or the path of your own module.`,
    { isCommon: true },
  ),
  prefillPolicy: option('<name>', policy.optional(), 'Policy for the prefill engine of a pair. Default: --policy.'),
  decodePolicy: option('<name>', policy.optional(), 'Policy for the decode engine of a pair. Default: --policy.'),
  modelPolicy: option(
    '<model=name...>',
    z.array(z.string().regex(/^.+=.+$/, 'expected model=policy')).default([]),
    'Policies for requests that name these models: model=policy.',
  ),
  sessionHeaders: option(
    '<names...>',
    z.array(headerName).default([...sessionHeaders]),
    'Headers that carry the session key, highest priority first.',
    { isCommon: true, needsRestart: true },
  ),
  sessionFields: option(
    '<names...>',
    z.array(z.enum(sessionFields)).default([...sessionFields]),
    'Fields of a JSON body that carry the session key, highest priority first. metadata.user_id and user count if their value names a session; with --policy rollout also while no two requests with the value overlap.',
  ),
  keyOrder: option(
    '<order>',
    z.enum(keyOrders).default('turnout'),
    'Where the routing key is searched: turnout (session keys first, in headers and body) or vllm-router (the order of that router).',
  ),
  hashLoadFactor: option(
    '<factor>',
    z.number().min(0).max(100).optional(),
    'consistent_hash, prefix_hash: a worker gets at most this multiple of its share of the requests in flight; further requests go to the next worker on the hash ring. 0: no limit. Default: no limit for consistent_hash, 1.25 for prefix_hash.',
  ),
  prefixHashTokens: option(
    '<count>',
    count.min(16).default(256),
    'prefix_hash: number of prompt tokens that are hashed (ids, or 4 bytes of text each).',
  ),
  engineLoadIntervalSecs: option(
    '<secs>',
    secs.default(0),
    'power_of_two: how often each engine is asked for its number of requests, which includes those of other routers. 0: only the requests of this router count.',
  ),
  sessionTtlSecs: option(
    '<secs>',
    secs.min(1).default(7_200),
    'A session without a request for this long has ended: for sticky_least_loaded, in GET /sessions, and for --max-weight-staleness.',
  ),
  assignmentMode: option(
    '<mode>',
    z.enum(['random', 'min_load', 'min_group']).default('random'),
    'manual: how a new key gets its worker: random, min_load (fewest requests in flight) or min_group (fewest keys).',
  ),
  maxIdleSecs: option(
    '<secs>',
    secs.min(1).default(14_400),
    'manual: a key without a request for this long is forgotten.',
  ),
  cacheThreshold: option(
    '<share>',
    z.number().min(0).max(1).default(0.5),
    'cache_aware: share of a prompt that a worker must have in its cache to be preferred.',
  ),
  balanceAbsThreshold: option(
    '<count>',
    count.default(32),
    'cache_aware, bucket: route to the least loaded worker when the most loaded one has more than this many requests more, and also more than --balance-rel-threshold times as many.',
  ),
  balanceRelThreshold: option(
    '<factor>',
    z.number().min(1).default(1.1),
    'cache_aware, bucket: see --balance-abs-threshold. Both thresholds must be exceeded.',
  ),
  evictionIntervalSecs: option(
    '<secs>',
    secs.optional(),
    'Accepted for compatibility; has no effect. --max-tree-size is enforced at every request.',
  ),
  maxTreeSize: option(
    '<blocks>',
    count.min(1_024).default(1_048_576),
    'cache_aware, rollout: number of prompt blocks that are remembered for all workers together; the least recently used are evicted. A block is 64 bytes in the first 4 KB of a prompt, 512 bytes after that.',
  ),
  bucketAdjustIntervalSecs: option(
    '<secs>',
    secs.min(0.1).default(5),
    'bucket: how often the boundaries of the prompt-length buckets are recomputed.',
  ),
  kvEventEndpoints: option(
    '<pairs...>',
    z
      .array(
        z.string().regex(/=(tcp|ipc):\/\//, 'expected worker=endpoint, for example http://gpu-1:8000=tcp://gpu-1:5557'),
      )
      .default([]),
    'kv_aware: KV event endpoints of workers, as http://worker:port=tcp://host:port; replay=tcp://host:port after an entry is the endpoint that sends missed events again.',
  ),
  kvEventPort: option(
    '<port>',
    port.min(1).default(5_557),
    'kv_aware: KV event port of all other workers, on the host of the worker; the DP rank is added to it.',
  ),
  kvReplayPort: option(
    '<port>',
    port.min(1).optional(),
    'kv_aware: replay port of these workers; the DP rank is added to it. Without it, events missed during a lost connection are not recovered.',
  ),
  residencyMaxWaitSecs: option(
    '<secs>',
    secs.default(60),
    'rollout: how long a turn may be held for KV cache space when the open sessions need more than the fleet has. After that it is sent anyway, and the next turn may be held again. 0: turns are never held.',
  ),
  dataDir: option(
    '<directory>',
    z.string().min(1).optional(),
    'Folder for what must survive a restart: session placements, learned answer lengths, captured trajectories. Without it they are lost.',
    { needsRestart: true, isCommon: true },
  ),
  streamCoalesceMs: option(
    '<ms>',
    z
      .union([count.max(10_000), z.literal('auto')], {
        error: ({ input }) => `${JSON.stringify(input)}: must be auto or a whole number of milliseconds`,
      })
      .default('auto'),
    'Read each event stream at most this often after its first events: less CPU per token, more latency. 0: immediately. auto: immediately while the event loop is less than half busy; above, up to 20 ms apart, and streams that send less often immediately.',
    { needsRestart: true },
  ),

  fireworksNames: option(
    '<where>',
    z.enum(fireworksNames).optional(),
    'Where paths and names of Fireworks are understood: inference (/inference/v1/completions and /inference/v1/chat/completions are sent to /v1/…, and accounts/… in their model becomes the name of the engine), all (accounts/… in the model of every /v1 request too) or off. Default: all with weight swaps, else inference.',
    { needsRestart: true },
  ),

  broadcastPaths: control(
    '<paths...>',
    paths,
    'Additional control paths that go to every worker and need the admin key; a * at the end matches anything.',
    { needsRestart: true },
  ),
  singleWorkerPaths: control(
    '<paths...>',
    paths,
    'Paths that go to one worker although the table of control paths sends them to every worker.',
    { needsRestart: true },
  ),
} as const;
