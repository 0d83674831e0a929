// What is measured: one entry per row of the report. A new row is one entry here.

export interface LoadShape {
  readonly connections: number;
  readonly bodyBytes: number;
  /** Events of the stream that is asked for; without it a JSON answer. */
  readonly events?: number;
  /** Size of the JSON answer where it is not the mock's usual 2 KB. */
  readonly answerMib?: number;
  /** A header line for every request; %d is the connection's number. */
  readonly header?: string;
  /** Request numbers, and with them prompts, come back after so many. */
  readonly ids?: number;
}

export type SystemName = 'turnout' | 'node-copy' | 'nginx' | 'vllm-router' | 'sglang-router' | 'smg';

/** A system in one configuration. Its args are command line options, for nginx directives of the location. */
export interface Contender {
  readonly label: string;
  readonly system: SystemName;
  readonly args: readonly string[];
}

/** The subject's figure may be at most so many times the peer's, or, without a peer, so much. */
export interface Target {
  readonly subject: string;
  readonly peer?: string;
  readonly atMost: number;
}

export interface Row {
  readonly name: string;
  readonly title: string;
  /** `cpu`: µs of the router's CPU per unit. `memory`: MB by which the router's resident memory peaks above idle. */
  readonly figure: 'cpu' | 'memory';
  readonly unit: 'request' | 'chunk';
  readonly mockMode: 'json' | 'sse' | 'paced';
  readonly load: LoadShape;
  readonly contenders: readonly Contender[];
  readonly targets: readonly Target[];
}

const roundRobin = ['--policy', 'round_robin'];

/** Every system that balances without looking at the request. */
function plain(nginxDirectives: readonly string[] = []): Contender[] {
  return [
    { label: 'turnout', system: 'turnout', args: ['--policy', 'least_inflight'] },
    { label: 'nginx', system: 'nginx', args: nginxDirectives },
    { label: 'vllm-router', system: 'vllm-router', args: roundRobin },
    { label: 'sglang-router', system: 'sglang-router', args: roundRobin },
    { label: 'smg', system: 'smg', args: roundRobin },
  ];
}

// Unless told otherwise nginx writes a large body to a file first, and then reads it in steps of 16 KB: with its defaults
// the row would cost it five times as much, and the comparison would be worth nothing.
const largeBody = ['proxy_request_buffering off', 'client_body_buffer_size 256k'];

const coalescing: Contender = {
  label: 'turnout, coalescing 50 ms',
  system: 'turnout',
  args: ['--policy', 'least_inflight', '--stream-coalesce-ms', '50'],
};

/** What Node itself costs: a proxy that looks at no byte. */
const copy: Contender = { label: 'node-copy (the floor)', system: 'node-copy', args: [] };

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
      { subject: 'turnout', peer: 'vllm-router', atMost: 0.85 },
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
