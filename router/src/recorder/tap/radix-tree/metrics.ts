import type { CaptureStats } from '../../thread/capture/capture-calls.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import type { PluginMetrics } from '../../../plugins/plugin-metrics.ts';
import type { RadixTree } from './radix-tree.ts';

type Numbers = { readonly [Name in keyof CaptureStats as CaptureStats[Name] extends number ? Name : never]: number };

/** Name and help by the count of the recorder thread. */
export const treeGauges: Readonly<Partial<Record<keyof Numbers, readonly [name: string, help: string]>>> = {
  nodes: ['turnout_radix_tree_nodes', 'Nodes in the token trees.'],
  bytes: ['turnout_radix_tree_bytes', 'Memory used by token tree nodes, in bytes.'],
};

export const treeCounters: Readonly<Partial<Record<keyof Numbers, readonly [name: string, help: string]>>> = {
  prompts: ['turnout_radix_tree_prompts_total', 'Prompts that were looked up in the token trees.'],
  hits: ['turnout_radix_tree_hits_total', 'Prompts that had a known prefix in the token trees.'],
  promptTokens: ['turnout_radix_tree_prompt_tokens_total', 'Tokens of the prompts that were looked up.'],
  knownTokens: [
    'turnout_radix_tree_known_tokens_total',
    'Prompt tokens that were known and therefore not encoded again.',
  ],
  turns: ['turnout_radix_tree_turns_total', 'Captured turns of radix-tree.'],
  uncaptured: ['turnout_radix_tree_uncaptured_total', 'Responses whose tokens could not be read.'],
  retokenized: [
    'turnout_radix_tree_retokenization_mismatches_total',
    'Captured texts whose recorded ids differ from those that tokenising the text again would give.',
  ],
  evictedNodes: ['turnout_radix_tree_evicted_nodes_total', 'Token tree nodes that were evicted because of a limit.'],
  collectedNodes: [
    'turnout_radix_tree_collected_nodes_total',
    'Token tree nodes that were removed because of the age of their weights.',
  ],
  evictedLiveTurns: [
    'turnout_radix_tree_evicted_live_turns_total',
    'Turns evicted because of a limit before their sessions were over (no end signal, and used within the last hour).',
  ],
  restored: ['turnout_radix_tree_restored_turns_total', 'Turns read back from the store into the token trees.'],
  lost: [
    'turnout_radix_tree_lost_turns_total',
    'Prompts of known sessions whose earlier turns are neither in the trees nor in the store (drift "lost").',
  ],
};

export const treeFailures = [
  'turnout_radix_tree_failures_total',
  'Requests that were sent unchanged because the recorder thread failed.',
] as const;

/** The counts of the recorder thread, read for each page of metrics. */
export function addMetrics(metrics: PluginMetrics, thread: RecorderThread, tree: RadixTree): void {
  let reading: Promise<CaptureStats> | null = null;
  // One call for the whole page.
  const stats = (): Promise<CaptureStats> => {
    reading ??= thread.ask('captureStats', null).finally(() => {
      reading = null;
    });
    return reading;
  };
  for (const [key, [name, help]] of entries(treeGauges)) {
    const gauge = metrics.gauge({
      name,
      help,
      async collect() {
        gauge.set((await stats())[key]);
      },
    });
  }
  for (const [key, [name, help]] of entries(treeCounters)) {
    const counter = metrics.counter({
      name,
      help,
      async collect() {
        // Those that were too large never reach the thread that counts.
        const value = (await stats())[key] + (key === 'uncaptured' ? tree.tooLarge : 0);
        counter.reset();
        counter.inc(value);
      },
    });
  }
  const [name, help] = treeFailures;
  const failures = metrics.counter({
    name,
    help,
    collect() {
      failures.reset();
      failures.inc(tree.failures);
    },
  });
}

const entries = <Key extends string, Value>(table: Readonly<Partial<Record<Key, Value>>>): [Key, Value][] =>
  Object.entries(table) as [Key, Value][];
