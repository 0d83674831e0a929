// The rows of the report, one entry each.

export interface LoadShape {
  readonly connections: number;
  /** Requests a second, whatever the responses do; left out: each connection sends the next one after its response. */
  readonly rate?: number;
  readonly bodyBytes: number;
  /** Events of the requested stream; left out for a JSON response. */
  readonly events?: number;
  /** Size of an event, if not the mock's usual 220 bytes. */
  readonly eventBytes?: number;
  /** The lateness of events in this time is not counted. */
  readonly skipMs?: number;
  /** Size of the JSON response, if not the mock's usual 2 KB. */
  readonly answerMib?: number;
  /** By default /v1/completions; with `/chat/` in it, bodies have messages. */
  readonly path?: string;
  /** Requests come from this many sessions in turn. */
  readonly sessions?: number;
  /**
   * A session has this many requests, then a new one replaces it. Its prompts grow: each begins with the one before it.
   * The first body has half of `bodyBytes`, the last one and a half times as much.
   */
  readonly turns?: number;
  /** A header line for every request; %d is the session's number. */
  readonly header?: string;
  /** A further header for the last request of each session. */
  readonly lastTurnHeader?: string;
}

/** `turnout-before`: another checkout of turnout (`--before DIR`). */
export type SystemName = 'turnout' | 'turnout-before' | 'node-copy' | 'nginx' | 'vllm-router' | 'sglang-router' | 'smg';

/** A system in one configuration. Its args are command line options; for nginx, directives of the location. */
export interface Contender {
  readonly label: string;
  readonly system: SystemName;
  readonly args: readonly string[];
  /** Workers that the mock engines are: each has a path of its own at one of them. By default one for each engine. */
  readonly workers?: number;
  /** Streams of the router that are open while it is measured, and read as fast as they come. */
  readonly reads?: readonly string[];
}

/** The largest allowed ratio to the peer's figure, or, without a peer, the largest figure. */
export interface Target {
  readonly subject: string;
  readonly peer?: string;
  readonly atMost: number;
}

export interface Row {
  readonly name: string;
  readonly title: string;
  /** What the work is and why, if the title does not say so. */
  readonly description?: string;
  /** `cpu`: µs of the router's CPU per unit. `memory`: MB by which the router's resident memory peaks above idle. */
  readonly figure: 'cpu' | 'memory';
  readonly unit: 'request' | 'chunk';
  readonly mockMode: 'json' | 'sse' | 'paced';
  readonly load: LoadShape;
  readonly contenders: readonly Contender[];
  readonly targets: readonly Target[];
}

const roundRobin = ['--policy', 'round_robin'];

/** Every system that balances without reading the request. */
function plain(nginxDirectives: readonly string[] = []): Contender[] {
  return [
    { label: 'turnout', system: 'turnout', args: ['--policy', 'least_inflight'] },
    { label: 'nginx', system: 'nginx', args: nginxDirectives },
    { label: 'vllm-router', system: 'vllm-router', args: roundRobin },
    { label: 'sglang-router', system: 'sglang-router', args: roundRobin },
    { label: 'smg', system: 'smg', args: roundRobin },
  ];
}

// By default nginx writes a large body to a file first and reads it in steps of 16 KB: the row would cost it five times
// as much, which would be no fair comparison.
const largeBody = ['proxy_request_buffering off', 'client_body_buffer_size 256k'];

function policy(label: string, system: SystemName, name: string): Contender {
  return { label, system, args: ['--policy', name] };
}

/** The same work without reading the request: the difference is the policy's cost. */
const blind = policy('turnout, least_inflight', 'turnout', 'least_inflight');

const cacheAware: readonly Contender[] = [
  policy('turnout', 'turnout', 'cache_aware'),
  policy('vllm-router', 'vllm-router', 'cache_aware'),
  policy('sglang-router', 'sglang-router', 'cache_aware'),
  blind,
];

/** The same policy in a small and in a large fleet. */
const fleets = ['rollout', 'cache_aware', 'consistent_hash'].flatMap((name) =>
  [4, 400].map((workers) => ({ ...policy(`turnout, ${name}, ${workers} workers`, 'turnout', name), workers })),
);

function flat(name: string): Target {
  return { subject: `turnout, ${name}, 400 workers`, peer: `turnout, ${name}, 4 workers`, atMost: 2 };
}

// Conversations, as in multi-turn rollouts: matching and growing the index in their usual proportion.
const conversations = { connections: 32, sessions: 64, turns: 8 };

function describeCacheRow(size: string): string {
  return `Conversations over \`/v1/completions\`: 64 sessions at a time, each of 8 turns and then replaced by a new one. The prompt
(a string) of each turn begins with that of the turn before it, and different sessions share nothing: ${size}, so 81 % of
what arrives was sent before. vllm-router asks an engine for the token ids of every prompt first; the mock engines answer
with one id for every 4 bytes, and ids of five digits, as tokenizers with large vocabularies make of English. More or longer
ids would cost vllm-router more, fewer would cost it less; the other routers compare bytes and don't ask.`;
}

const coalescing: Contender = {
  label: 'turnout, coalescing 50 ms',
  system: 'turnout',
  args: ['--policy', 'least_inflight', '--stream-coalesce-ms', '50'],
};

/** Chats of sessions that say when they end. */
const chats = {
  ...conversations,
  bodyBytes: 2048,
  path: '/v1/chat/completions',
  header: 'x-session-id: session-%d',
  lastTurnHeader: 'x-turnout-session-end: 1',
};

/** The cost of Node itself: a proxy that reads no byte. */
const copy: Contender = { label: 'node-copy (the floor)', system: 'node-copy', args: [] };

function withoutKey(name: string, size: string, bodyBytes: number): Row {
  return {
    name,
    title: `${size} \`/generate\` without a session, default policy`,
    description: `Every prompt is new and no request names a session. The default policy, \`rollout\`, reads the prompt to find out what
an engine has of it: that is what it costs more than \`least_inflight\`.`,
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 32, bodyBytes, path: '/generate' },
    contenders: [{ label: 'turnout', system: 'turnout', args: [] }, blind],
    targets: [],
  };
}

const observed = ['--policy', 'least_inflight'];
const traced = ['--otlp-traces-endpoint', 'http://127.0.0.1:9', '--trace-sample-ratio', '0.01'];

export const rows: readonly Row[] = [
  {
    name: 'json-2k',
    title: '2 KB JSON',
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 32, bodyBytes: 2048 },
    contenders: plain(),
    targets: [
      { subject: 'turnout', peer: 'vllm-router', atMost: 0.4 },
      { subject: 'turnout', peer: 'nginx', atMost: 1.75 },
    ],
  },
  {
    name: 'json-2k-observed',
    title: '2 KB JSON, observed',
    description: `What it takes to keep the last requests for \`turnout explain\` and to send traces of 1 % of them, and to send each request to
\`turnout tap\`. Metrics are always counted. The collector of the traces does not answer.`,
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 32, bodyBytes: 2048 },
    contenders: [
      { label: 'turnout', system: 'turnout', args: [...observed, ...traced] },
      { label: 'turnout, no traces', system: 'turnout', args: observed },
      {
        label: 'turnout, no traces, nothing kept',
        system: 'turnout',
        args: [...observed, '--explain-buffer-bytes', '0'],
      },
      { label: 'turnout, with a reader of /tap', system: 'turnout', args: [...observed, ...traced], reads: ['/tap'] },
    ],
    targets: [{ subject: 'turnout', peer: 'turnout, no traces, nothing kept', atMost: 1.15 }],
  },
  {
    name: 'sse-burst',
    title: '200-chunk SSE at once',
    figure: 'cpu',
    unit: 'request',
    mockMode: 'sse',
    load: { connections: 32, bodyBytes: 2048, events: 200 },
    contenders: plain(),
    targets: [
      { subject: 'turnout', peer: 'vllm-router', atMost: 0.25 },
      { subject: 'turnout', peer: 'nginx', atMost: 1.2 },
    ],
  },
  {
    name: 'sse-paced',
    title: 'SSE paced: 256 streams, a chunk every 10 ms each',
    figure: 'cpu',
    unit: 'chunk',
    mockMode: 'paced',
    load: { connections: 256, bodyBytes: 2048 },
    contenders: [...plain(), coalescing, copy],
    targets: [
      { subject: 'turnout', peer: 'vllm-router', atMost: 1.05 },
      { subject: 'turnout', peer: 'nginx', atMost: 1.25 },
      { subject: coalescing.label, peer: 'vllm-router', atMost: 0.5 },
    ],
  },
  {
    name: 'body-200k',
    title: '200 KB body',
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 32, bodyBytes: 204_800 },
    contenders: plain(largeBody),
    targets: [
      { subject: 'turnout', peer: 'vllm-router', atMost: 0.5 },
      { subject: 'turnout', peer: 'nginx', atMost: 1.5 },
    ],
  },
  {
    name: 'hash-2k',
    title: '2 KB JSON by session, consistent hash',
    description: `512 sessions in turn, named by the header \`x-session-id\`; every prompt is new.`,
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 32, bodyBytes: 2048, sessions: 512, header: 'x-session-id: session-%d' },
    contenders: [
      policy('turnout', 'turnout', 'consistent_hash'),
      policy('vllm-router', 'vllm-router', 'consistent_hash'),
      blind,
    ],
    targets: [{ subject: 'turnout', peer: 'vllm-router', atMost: 0.3 }],
  },
  {
    name: 'cache-2k',
    title: '2 KB prompts, cache-aware',
    description: describeCacheRow('1 KB at first, 3 KB at last, 2 KB on average'),
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { ...conversations, bodyBytes: 2048 },
    contenders: cacheAware,
    targets: [{ subject: 'turnout', peer: 'vllm-router', atMost: 0.35 }],
  },
  {
    name: 'cache-200k',
    title: '200 KB prompts, cache-aware',
    description: describeCacheRow('100 KB at first, 300 KB at last, 200 KB on average'),
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: { ...conversations, bodyBytes: 204_800 },
    contenders: cacheAware,
    targets: [{ subject: 'turnout', peer: 'vllm-router', atMost: 0.55 }],
  },
  {
    name: 'rollout-2k',
    title: '2 KB chat by session, rollout policy',
    description: `Conversations over \`/v1/chat/completions\`: 64 sessions at a time, each of 8 turns and then replaced by a new one;
1 KB at first, 3 KB at last, 2 KB on average. The header \`x-session-id\` names the session, and its last turn says that it is
one (\`x-turnout-session-end: 1\`). Answers carry their \`usage\`, from which the policy learns lengths. The peer does none of
this: it balances in turn.`,
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: chats,
    contenders: [policy('turnout', 'turnout', 'rollout'), policy('vllm-router', 'vllm-router', 'round_robin'), blind],
    targets: [{ subject: 'turnout', peer: 'vllm-router', atMost: 0.45 }],
  },
  {
    name: 'workers-400',
    title: '2 KB chat by session, 400 workers',
    description: `The same conversations at 4 and at 400 workers: what a decision costs in a large fleet. The workers are paths of two mock
engines, so the connections to 400 workers are a part of the figure, and so are their health checks.`,
    figure: 'cpu',
    unit: 'request',
    mockMode: 'json',
    load: chats,
    contenders: fleets,
    targets: [flat('rollout'), flat('cache_aware')],
  },
  withoutKey('default-2k', '2 KB', 2048),
  withoutKey('default-200k', '200 KB', 204_800),
  {
    name: 'answer-100m',
    title: '100 MB answer',
    figure: 'memory',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 1, bodyBytes: 2048, answerMib: 100 },
    contenders: plain(),
    targets: [{ subject: 'turnout', atMost: 4 }],
  },
  {
    name: 'request-256m',
    title: '256 MB request (268,435,456 bytes)',
    figure: 'memory',
    unit: 'request',
    mockMode: 'json',
    load: { connections: 1, bodyBytes: 268_435_456 },
    contenders: plain(largeBody),
    targets: [],
  },
];
