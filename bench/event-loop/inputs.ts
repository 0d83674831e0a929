// Requests within the limits that could block the event loop.
const MB = 1 << 20;

export interface Input {
  readonly name: string;
  readonly path: string;
  readonly body: Buffer | null;
  /** Bytes of a chunk; 0 for a Content-Length. */
  readonly chunkBytes: number;
  /** The expected status. */
  readonly status: number;
  /** The approximate size of the engine's response or of the last event of its stream; left out for the smallest. */
  readonly answerBytes?: number;
}

const filled = (text: string, bytes: number): string => text.repeat(Math.ceil(bytes / text.length));

/** The most expensive JSON that was found: short runs of numbers, each followed by a string. */
const worst = `[${'1,'.repeat(40)}"x"],`;

/** Bodies of about the given size, by content. */
export const shapes = {
  text: (bytes: number) => `{"text":"${filled('The quick brown fox. ', bytes)}"}`,
  prompt: (bytes: number) => `{"prompt":"${filled('The quick brown fox. ', bytes)}"}`,
  ids: (bytes: number) => `{"input_ids":[${filled('12345,67,8901,', bytes)}1]}`,
  'worst JSON': (bytes: number) => `{"input_ids":[${filled(worst, bytes)}1]}`,
  'worst JSON, no prompt': (bytes: number) => `{"prompt":"x","y":[${filled(worst, bytes)}1]}`,
  messages: (bytes: number) =>
    `{"messages":[${filled('{"role":"user","content":"What is 6 times 7?"},', bytes)}{"role":"user","content":"?"}]}`,
  'a base64 tensor': (bytes: number) => `{"input_ids":[1,2,3],"image_data":"${filled('AbCd+/09', bytes)}"}`,
  'deep nesting': (bytes: number) => `{"text":"x","a":${'['.repeat(bytes / 2)}${']'.repeat(bytes / 2)}}`,
  'many keys': (bytes: number) => `{"text":"x"${filled(',"abcdef":1', bytes)}}`,
  'a batch': (bytes: number) => `{"text":[${filled('"fox and hound, ", ', bytes)}"x"]}`,
  'a user': (bytes: number) => `{"user":"someone","prompt":"${filled('The quick brown fox. ', bytes)}"}`,
} as const;
export type Shape = keyof typeof shapes;

export const of = (shape: Shape, path: string, bytes: number): Input => ({
  name: `${shape}, ${bytes >= MB ? `${bytes / MB} MB` : `${Math.round(bytes / 1000)} KB`}`,
  path,
  body: Buffer.from(shapes[shape](bytes - 1_000)),
  chunkBytes: 0,
  status: 200,
});

/** Small requests with large responses. */
export const answered = (path: string): Input[] =>
  [2_000, MB, 4 * MB, 16 * MB].map((answerBytes) => ({
    name: `an answer of ${answerBytes < MB ? '2 KB' : `${answerBytes / MB} MB`}`,
    path,
    body: Buffer.from('{"text":"x","prompt":"x","return_logprob":true,"prompt_logprobs":1}'),
    chunkBytes: 0,
    status: 200,
    answerBytes,
  }));

/** Small requests with streamed responses that have one large event. */
export const streamed = (path: string): Input[] =>
  [2_000, MB, 16 * MB, 64 * MB].map((answerBytes) => ({
    name: `a stream with an event of ${answerBytes < MB ? '2 KB' : `${answerBytes / MB} MB`}`,
    path,
    body: Buffer.from(
      '{"text":"x","prompt":"x","return_logprob":true,"messages":[{"role":"user","content":"x"}],"return_routed_experts":true,"stream":true}',
    ),
    chunkBytes: 0,
    status: 200,
    answerBytes,
  }));

const noJson = Buffer.alloc(100 * MB, 'x');

const looked: readonly Shape[] = ['text', 'ids', 'worst JSON', 'messages', 'a base64 tensor', 'deep nesting'];

/** The inputs of every setup. */
export const plain = (): Input[] => [
  of('prompt', '/v1/completions', 2_000),
  of('prompt', '/v1/completions', MB / 2),
  of('worst JSON', '/generate', MB / 4),
  of('ids', '/generate', 600_000),
  ...looked.map((shape) => of(shape, shape === 'messages' ? '/v1/chat/completions' : '/generate', 16 * MB)),
  of('many keys', '/generate', 16 * MB),
  of('a user', '/v1/completions', 16 * MB),
  of('prompt', '/v1/completions', 64 * MB),
  { name: 'no JSON, 100 MB', path: '/upload', body: noJson, chunkBytes: 0, status: 200 },
  { name: 'no JSON, 100 MB in chunks', path: '/upload', body: noJson, chunkBytes: 65_536, status: 200 },
  { ...of('prompt', '/v1/completions', MB), name: 'a prompt of 1 MB in chunks of 1 byte', chunkBytes: 1 },
  { ...of('worst JSON', '/workers', 250_000), name: 'the router itself, 250 KB', status: 400 },
  { name: 'metrics', path: '/metrics', body: null, chunkBytes: 0, status: 200 },
];

/** Inputs whose bodies the router changes. */
export const changed = (path: string, own: readonly Shape[]): Input[] => [
  of(own[0]!, path, 2_000),
  of(own[0]!, path, MB / 2),
  of('worst JSON, no prompt', path, MB / 2),
  ...[...own, 'worst JSON, no prompt' as const, 'deep nesting' as const, 'many keys' as const].map((shape) =>
    of(shape, path, 16 * MB),
  ),
  of(own[0]!, path, 64 * MB),
  of('worst JSON, no prompt', path, 64 * MB),
];
