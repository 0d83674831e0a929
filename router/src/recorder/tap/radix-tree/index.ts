import { z } from 'zod';
import { machineMemory } from '../../shared/memory-limit.ts';
import type { Trajectories } from '../recorder.ts';
import type { PluginDefinition } from '../../../plugins/definition.ts';
import { SameTokens } from '../tokenizer-check/tokenizer-check.ts';
import { LossWatch } from './loss-watch.ts';
import { addRoutes } from './routes.ts';
import { addMetrics } from './metrics.ts';
import { RadixTree, type RadixTreeOptions } from './radix-tree.ts';

const options = z.strictObject({
  forward: z.enum(['ids', 'text']).default('ids').describe('What engines get where a client sends text.'),
  completions: z.boolean().default(false).describe('Also /v1/completions; answers have their token ids then.'),
  verify: z.boolean().default(true).describe('Compare the tokenizer with that of each engine when it joins.'),
});

/** The radix tree of tokens: see docs/guides/exact-tokens.md. */
export const radixTree = (trajectories: Trajectories | null): PluginDefinition<RadixTreeOptions> => ({
  name: 'radix-tree',
  options,
  async create(own, { config, fleet, log, metrics }) {
    if (config.tokenizerPath === undefined || trajectories === null) {
      throw new Error("it needs the model's tokenizer: --tokenizer-path");
    }
    const { ledger } = trajectories;
    const kind = await ledger.ask('loadTokenizer', null);
    log.info({ tokenizer: config.tokenizerPath, kind }, 'tokenizer loaded');
    const { bytes, from } = machineMemory();
    const limit = { maxBytes: trajectories.treeBytes, maxNodes: config.radixMaxCacheSize ?? null };
    log.info({ ...limit, memoryBytes: bytes, memoryFrom: from }, 'memory limit of the token trees');
    const sameTokens = new SameTokens((text) => ledger.ask('encodeText', text), log);
    if (own.verify) sameTokens.watch(fleet);
    const { sessionHeaders } = config;
    const isTinkerServed = config.tinker;
    const tree = new RadixTree(own, { trajectories, sameTokens, sessionHeaders, isTinkerServed, log });
    trajectories.calls.record(() => true);
    ledger.tell('fillTrees', null);
    const watch = new LossWatch(() => ledger.ask('captureStats', null), limit.maxBytes, log);
    addMetrics(metrics, ledger, tree);
    return {
      appliesTo: (x) => tree.appliesTo(x),
      requestBody: (x, body, worker) => tree.requestBody(x, body, worker),
      hearAnswer: (x, head) => tree.hearAnswer(x, head),
      finished: (x) => tree.finished(x),
      routes: ({ forClients }) => addRoutes(forClients, ledger, tree, sessionHeaders),
      // Texts of megabytes, and many of them at once, wait for one thread.
      timeoutMs: 600_000,
      close: () => {
        watch.close();
        return sameTokens.close();
      },
    };
  },
});
