import type { Gauge } from 'prom-client';
import { type MetricSpec, type Sample, one } from '../../observe/metrics/spec.ts';
import type { PluginMetrics } from '../../plugins/plugin-metrics.ts';
import type { CaptureStats } from '../thread/capture/capture-calls.ts';
import type { ChatStats } from '../thread/chat/chat-calls.ts';

/** Name and help of metrics by their counts. */
type Table<Count extends string> = Readonly<Record<Count, readonly [name: string, help: string]>>;

export const treeGauges = {
  nodes: ['turnout_radix_tree_nodes', 'Nodes in the token trees.'],
  bytes: ['turnout_radix_tree_bytes', 'Memory used by token tree nodes, in bytes.'],
} as const satisfies Partial<Table<keyof CaptureStats>>;

export const treeCounters = {
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
} as const satisfies Partial<Table<keyof CaptureStats>>;

/** Counted on the event loop, so `GET /metrics` has it after the recorder thread has ended, too. */
export const treeFailures = {
  failures: [
    'turnout_radix_tree_failures_total',
    'Requests that were sent unchanged because the recorder thread failed.',
  ],
} as const satisfies Table<'failures'>;

export const chatMetrics = {
  turns: ['turnout_chat_turns_total', 'Captured turns of chat sessions.'],
  drifted: [
    'turnout_chat_drifted_turns_total',
    'Captured turns of chat sessions whose prompt does not continue the stored tokens.',
  ],
  observed: [
    'turnout_chat_observed_turns_total',
    'Captured turns of chat sessions whose prompt the engine rendered itself.',
  ],
  torn: ['turnout_chat_torn_turns_total', 'Captured turns of chat sessions whose streams were truncated.'],
  uncaptured: ['turnout_chat_uncaptured_total', 'Responses of chat sessions that could not be captured.'],
  unread: ['turnout_chat_unread_sessions_total', 'Sessions whose earlier turns could not be read from the store.'],
} as const satisfies Partial<Table<keyof ChatStats>>;

/** @param read the counts: called once for a page of metrics */
export function addMetrics(
  metrics: PluginMetrics,
  gauges: Table<string>,
  counters: Table<string>,
  read: () => Promise<Readonly<Record<string, unknown>>>,
): void {
  let reading: ReturnType<typeof read> | null = null;
  const valueOf = async (count: string): Promise<number> => {
    reading ??= read().finally(() => {
      reading = null;
    });
    return (await reading)[count] as number;
  };
  const add = (type: 'gauge' | 'counter', table: Table<string>): void => {
    for (const [count, [name, help]] of Object.entries(table))
      addMetric(metrics, { type, name, help }, async () => one(await valueOf(count)));
  };
  add('gauge', gauges);
  add('counter', counters);
}

/** A metric whose samples are read for each page. */
export function addMetric(
  metrics: PluginMetrics,
  { type, name, help, labels: labelNames = [] }: Omit<MetricSpec, 'read'>,
  read: () => readonly Sample[] | Promise<readonly Sample[]>,
): void {
  const settings = {
    name,
    help,
    labelNames: [...labelNames],
    async collect() {
      const samples = await read();
      metric.reset();
      for (const { labels, value } of samples) metric.inc(labels, value);
    },
  };
  const metric: Pick<Gauge, 'reset' | 'inc'> = type === 'gauge' ? metrics.gauge(settings) : metrics.counter(settings);
}
