import { openLog } from '../../router/src/observe/log.ts';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig, startRouter } from '../../router/src/index.ts';
import { runAgentBatch } from '../../router/src/batch/agent-batch.ts';
import { spawnSimEngine } from '../../simulator/src/spawn.ts';
import { writeTokenizer } from '../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode } from '../../simulator/src/tokens/tokenizer.ts';

/** The fields of a trajectory in the JSONL export that are shown here. */
interface ExportedRow {
  readonly session: string;
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly rollout_log_probs: readonly (number | null)[];
  readonly turns: readonly { readonly drift: unknown }[];
}

/**
 * Captures a small batch and compares the recorded ids with those of tokenising the text again.
 * @returns what was not as it must be
 */
export async function showExactness(say: (line: string) => void): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-demo-'));
  // Like real models, this one samples pieces that its tokenizer would join when it reads the text.
  const engine = await spawnSimEngine({
    kind: 'sglang',
    timeScale: 0.05,
    meanOutputTokens: 40,
    retokenizationDrift: true,
  });
  try {
    writeTokenizer(folder);
    const options = { port: 0, prometheusPort: 0, workerUrls: [engine.url], tokenizerPath: folder, captureChat: true };
    const router = await startRouter(loadConfig(options, {}, undefined), { log: openLog('critical').logger });
    try {
      const shape = { sessions: 16, groupSize: 4, turns: 4, promptWords: 30, turnWords: 10, maxTokens: 40 };
      await runAgentBatch({ ...shape, url: router.url, model: 'sim', seed: 1, onTurn: () => {} });
      const exported = await (await fetch(`${router.url}/trajectories?format=jsonl`)).text();
      return report(
        exported
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as ExportedRow),
        say,
      );
    } finally {
      await router.close();
    }
  } finally {
    await engine.kill('SIGTERM');
    rmSync(folder, { recursive: true });
  }
}

function report(rows: readonly ExportedRow[], say: (line: string) => void): string[] {
  const turns = rows.flatMap((row) => sampledSpans(row).map(([from, to]) => row.tokens.slice(from, to)));
  const changed = turns.filter((ids) => encode(decode([...ids])).join() !== ids.join()).length;
  const drifted = rows.flatMap((row) => row.turns).filter(({ drift }) => drift != null).length;
  say(
    `${changed} of ${turns.length} turns would have had other token ids if their text had been tokenised again; here ${drifted}.`,
  );
  const lengthOf = (row: ExportedRow): number => (sampledSpans(row)[0]?.[1] ?? 0) - (sampledSpans(row)[0]?.[0] ?? 0);
  const row = rows.toSorted((a, b) => lengthOf(b) - lengthOf(a))[0]!;
  const [[from, to] = [0, 0]] = sampledSpans(row);
  const start = Math.max(0, from - 3);
  const shown = (values: readonly (number | null)[]): string =>
    values
      .slice(start, Math.min(to, start + 10))
      .map((value) => (value === null ? 'null' : String(Math.round(value * 100) / 100)).padStart(6))
      .join(' ');
  say(`One trajectory, ${row.session}: ${row.tokens.length} tokens, from token ${start} on`);
  say(`  tokens    ${shown(row.tokens)} …`);
  say(`  loss_mask ${shown(row.loss_mask)} …`);
  say(`  logprobs  ${shown(row.rollout_log_probs)} …`);
  return [
    ...(drifted === 0 ? [] : [`${drifted} recorded turns have other token ids than those that were sampled`]),
    ...(changed > 0 ? [] : ['no turn would have had other token ids']),
  ];
}

/** The spans with mask 1: one per turn. */
function sampledSpans({ loss_mask: mask }: ExportedRow): [from: number, to: number][] {
  const spans: [number, number][] = [];
  for (let i = 0; i < mask.length; i++) {
    if (mask[i] !== 1) continue;
    const from = i;
    while (mask[i + 1] === 1) i++;
    spans.push([from, i + 1]);
  }
  return spans;
}
