// The configurations in which a router processes bodies.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import type { Input, Shape, answered, changed, of, plain, streamed } from './inputs.ts';

export interface Setup {
  readonly name: string;
  /** @param engines one that answers, one that always sends 503, and another one that answers */
  readonly args: (engines: readonly string[]) => string[];
  readonly inputs: (of: Makers) => Input[];
  readonly fails?: true;
}

interface Makers {
  readonly plain: typeof plain;
  readonly changed: typeof changed;
  readonly answered: typeof answered;
  readonly streamed: typeof streamed;
  readonly of: typeof of;
}

const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
process.on('exit', () => rmSync(folder, { recursive: true }));
writeTokenizer(folder);

/** Reads whole responses and events of streams, and does not change them. */
const ofAnswers = join(folder, 'of-answers.js');
writeFileSync(
  ofAnswers,
  "export default { name: 'of-answers', create: () => ({ responseBody: (_x, body) => body, responseEvent: (_x, event) => event }) };",
);

/** 500 workers. */
const ranks = (engine: string): string[] => Array.from({ length: 500 }, (_, rank) => `${engine}@${rank}`);
const unwatched = '--disable-health-check';

const policy = (name: string): Setup => ({
  name,
  args: ([engine]) => ['--policy', name, unwatched, '--worker-urls', ...ranks(engine!)],
  inputs: ({ plain }) => plain(),
});

const generate: readonly Shape[] = ['text', 'ids', 'a base64 tensor', 'a batch'];
const plugin = (name: string, path: string, shape: Shape): Setup => ({
  name,
  args: ([engine]) => {
    const own = ['--plugin', `${name}:{"verify":false}`, '--plugin-timeout-ms', '600000'];
    const captures = name === 'chat-sessions' ? ['--capture-chat'] : [];
    return ['--worker-urls', engine!, '--tokenizer-path', folder, ...own, ...captures];
  },
  inputs: ({ of, streamed }) => [
    ...[2_000, 500_000, 1 << 24].map((bytes) => of(shape, path, bytes)),
    ...streamed(path),
  ],
});

export const setups: readonly Setup[] = [
  ...['least_inflight', 'rollout', 'cache_aware', 'consistent_hash', 'prefix_hash', 'kv_aware'].map(policy),
  {
    name: 'ranks of SGLang',
    args: ([engine]) => ['--worker-urls', `${engine}@0`, `${engine}@1`],
    inputs: ({ changed }) => changed('/generate', generate),
  },
  {
    name: 'pairs of SGLang',
    args: ([engine, , other]) => ['--pd-disaggregation', unwatched, '--prefill', engine!, '--decode', other!],
    inputs: ({ changed, answered, streamed }) => [
      ...answered('/generate'),
      ...streamed('/generate'),
      ...changed('/generate', ['text', 'ids', 'a base64 tensor']),
    ],
  },
  {
    name: 'pairs of vLLM',
    args: ([engine, , other]) => ['--vllm-pd-disaggregation', unwatched, '--prefill', engine!, '--decode', other!],
    inputs: ({ changed, answered, streamed }) => [
      ...answered('/v1/completions'),
      ...streamed('/v1/completions'),
      ...changed('/v1/completions', ['prompt', 'messages']),
    ],
  },
  {
    name: 'a plugin of answers',
    args: ([engine]) => ['--worker-urls', engine!, '--plugin', ofAnswers],
    inputs: ({ answered, streamed }) => [...answered('/generate'), ...streamed('/generate')],
  },
  plugin('radix-tree', '/generate', 'text'),
  plugin('chat-sessions', '/v1/chat/completions', 'messages'),
  {
    name: 'a second try',
    args: ([engine, failing]) => {
      const inTurn = ['--policy', 'round_robin', '--disable-circuit-breaker'];
      return [...inTurn, unwatched, '--worker-urls', engine!, failing!];
    },
    fails: true,
    inputs: ({ of }) => [1 << 24, 1 << 26].map((bytes) => of('prompt', '/v1/completions', bytes)),
  },
];
