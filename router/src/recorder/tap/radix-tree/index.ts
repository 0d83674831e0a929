import * as z from 'zod';
import { machineMemory } from '../../shared/memory-limit.ts';
import { dialectOf } from '../../../engines/dialects/dialects.ts';
import type { Exchange } from '../../../exchange.ts';
import type { Recorder } from '../recorder.ts';
import type { PluginDefinition } from '../../../plugins/definition.ts';
import { addMetrics, treeCounters, treeFailures, treeGauges } from '../metrics.ts';
import { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import { addRoutes } from './routes.ts';
import { type TextOptions, TextStrategy } from './text-strategy.ts';
import { Capture } from '../capture.ts';
import { TokenLookup } from './token-lookup.ts';

const options = z.strictObject({
  forward: z.enum(['ids', 'text']).default('ids').describe('What engines get where a client sends text.'),
  completions: z.boolean().default(false).describe('Also /v1/completions; answers have their token ids then.'),
  verify: z.boolean().default(true).describe('Compare the tokenizer with that of each engine when it joins.'),
});

/** The radix tree of tokens: see docs/guides/exact-tokens.md. */
export const radixTree = (recorder: Recorder | null): PluginDefinition<TextOptions> => ({
  name: 'radix-tree',
  options,
  async create(own, { config, fleet, log, metrics }) {
    if (config.tokenizerPath === undefined || recorder === null) {
      throw new Error("it needs the model's tokenizer: --tokenizer-path");
    }
    const { thread } = recorder;
    await recorder.restarts.prepare(async () => {
      const kind = await thread.ask('loadTokenizer', null);
      log.info({ tokenizer: config.tokenizerPath, kind }, 'tokenizer loaded');
    });
    const { bytes, from } = machineMemory();
    const limit = { maxBytes: recorder.treeBytes, maxNodes: config.radixMaxCacheSize ?? null };
    log.info({ ...limit, memoryBytes: bytes, memoryFrom: from }, 'memory limit of the token trees');
    const tokenizerCheck = new TokenizerCheck((text) => thread.ask('encodeText', text), log);
    if (own.verify) tokenizerCheck.watch(fleet);
    const lookup = new TokenLookup(own, recorder, log);
    const strategy = new TextStrategy(own, recorder, tokenizerCheck, lookup);
    const capture = new Capture(recorder, strategy);
    recorder.calls.record(
      () => true,
      () => true,
    );
    await recorder.restarts.prepare(() => Promise.resolve(thread.tell('fillTrees', null)));
    addMetrics(metrics, treeGauges, treeCounters, async () => {
      const stats = await thread.ask('captureStats', null);
      // Responses that were too large are counted here: they never reach the recorder thread.
      return { ...stats, uncaptured: stats.uncaptured + strategy.tooLargeResponses };
    });
    addMetrics(metrics, {}, treeFailures, () => Promise.resolve({ failures: lookup.failures }));
    return {
      appliesTo: ({ path, head }) => {
        if (head.method !== 'POST' && head.method !== 'PUT') return false;
        const dialect = dialectOf(path)?.name ?? null;
        // Samples of the Tinker API, which are requests of the router's own, ask for the ids of their responses themselves.
        const hasIds = own.completions || (config.tinker && head.isTrusted);
        return dialect !== null && (dialect !== 'completions' || hasIds);
      },
      requestBody: (x: Exchange, body, worker) => capture.requestBody(x, body, worker),
      observeResponse: (x: Exchange, head) => capture.observeResponse(x, head),
      finished: (x: Exchange) => capture.finished(x),
      routes: ({ forClients }) => addRoutes(forClients, thread, { strategy, lookup }, config.sessionHeaders),
      timeoutMs: capture.timeoutMs,
      close: () => tokenizerCheck.close(),
    };
  },
});
