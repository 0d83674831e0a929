import type { CaptureStats } from '../../trajectory/capture/capture-calls.ts';
import type { Ledger } from '../../trajectory/ledger.ts';
import type { PluginMetrics } from '../plugin-metrics.ts';
import type { RadixTree } from './radix-tree.ts';

type Numbers = { readonly [Name in keyof CaptureStats as CaptureStats[Name] extends number ? Name : never]: number };

const gauges: Readonly<Partial<Record<keyof Numbers, readonly [name: string, help: string]>>> = {
  nodes: ['turnout_radix_tree_nodes', 'Nodes of all token trees.'],
  bytes: ['turnout_radix_tree_bytes', 'What they take, in bytes.'],
};

const counters: Readonly<Partial<Record<keyof Numbers, readonly [name: string, help: string]>>> = {
  prompts: ['turnout_radix_tree_prompts_total', 'Prompts whose tokens were looked up.'],
  hits: ['turnout_radix_tree_hits_total', 'Prompts of which some tokens were known.'],
  promptTokens: ['turnout_radix_tree_prompt_tokens_total', 'Tokens of those prompts.'],
  knownTokens: ['turnout_radix_tree_known_tokens_total', 'Tokens of them that were known, and not encoded.'],
  turns: ['turnout_radix_tree_turns_total', 'Answers whose tokens were kept.'],
  uncaptured: ['turnout_radix_tree_uncaptured_total', 'Answers that no tokens could be read of.'],
  retokenized: [
    'turnout_radix_tree_retokenization_mismatches_total',
    'Texts given back whose ids are not those that encoding them would have given.',
  ],
  evictedNodes: ['turnout_radix_tree_evicted_nodes_total', 'Nodes that went because of a limit.'],
  evictedLiveTurns: [
    'turnout_radix_tree_evicted_live_turns_total',
    'Turns that went because of a limit before their sessions were over (without an end, and used within the last hour).',
  ],
  restored: ['turnout_radix_tree_restored_turns_total', 'Turns that were brought back from the store.'],
  lost: [
    'turnout_radix_tree_lost_turns_total',
    'Prompts of sessions that have turns neither in the trees nor in the store: the turn has the drift "lost".',
  ],
  collectedNodes: ['turnout_radix_tree_collected_nodes_total', 'Nodes that went for the age of their weights.'],
};

/** The counts of the trajectory thread, read when somebody asks for the page. */
export function addMetrics(metrics: PluginMetrics, ledger: Ledger, tree: RadixTree): void {
  let reading: Promise<CaptureStats> | null = null;
  // One question for the whole page.
  const stats = (): Promise<CaptureStats> => {
    reading ??= ledger.ask('captureStats', null).finally(() => {
      reading = null;
    });
    return reading;
  };
  for (const [key, [name, help]] of entries(gauges)) {
    const gauge = metrics.gauge({
      name,
      help,
      async collect() {
        gauge.set((await stats())[key]);
      },
    });
  }
  for (const [key, [name, help]] of entries(counters)) {
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
  const failures = metrics.counter({
    name: 'turnout_radix_tree_failures_total',
    help: 'Requests that went on as they were because the trajectory thread failed at them.',
    collect() {
      failures.reset();
      failures.inc(tree.failures);
    },
  });
}

const entries = <Key extends string, Value>(table: Readonly<Partial<Record<Key, Value>>>): [Key, Value][] =>
  Object.entries(table) as [Key, Value][];
