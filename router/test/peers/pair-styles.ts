import type { TestContext } from 'node:test';
import { answer, startEngine } from '../harness/engine.ts';
import { type Ask, sglangGeneration, vllmGeneration } from './asks.ts';
import { type ReadPair, readBootstrap, readTransfer } from './pair-fields.ts';

/** A way in which a peer has two engines serve one request. */
export interface PairStyle {
  readonly name: string;
  readonly asks: readonly Ask[];
  readonly flags: (t: TestContext, prefill: string, decode: string) => Promise<readonly string[]>;
  readonly read: ReadPair;
  /** Fields of a prefill engine that the peer also writes out by habit. */
  readonly habits: readonly string[];
}

export const sglangPairs: PairStyle = {
  name: 'SGLang',
  asks: sglangGeneration,
  flags: async (_, prefill, decode) => ['--pd-disaggregation', '--prefill', prefill, '8998', '--decode', decode],
  read: readBootstrap,
  habits: [],
};

export const nixlPairs: PairStyle = {
  name: 'vLLM with NIXL',
  asks: vllmGeneration,
  flags: async (_, prefill, decode) => ['--vllm-pd-disaggregation', '--prefill', prefill, '--decode', decode],
  read: readTransfer,
  habits: ['+stream=false'],
};

export const mooncakePairs: PairStyle = {
  ...nixlPairs,
  name: 'vLLM with Mooncake',
  flags: async (t, prefill, decode) => {
    const ranks = '{"0":{"engine_id":"engine-of-rank-0"}}';
    // Asked by both routers, each in its own way.
    const server = await startEngine(t, {
      host: new URL(prefill).hostname,
      control: () => answer(200, ranks, ['content-type: application/json']),
      onRequest: (asked) => asked.answer(ranks),
    });
    const { port } = new URL(server.url);
    const own = ['--vllm-pd-disaggregation', '--kv-connector', 'mooncake'];
    return [...own, '--prefill', prefill, port, '--decode', decode];
  },
};
