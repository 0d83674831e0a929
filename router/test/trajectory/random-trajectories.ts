import type { Random } from '../../src/kit/rng.ts';
import { often } from '../harness/often.ts';

/** What people, tools and models say: text that tokenizers stumble over. */
export const snippets: readonly string[] = [
  'What is the name of the moon?',
  ' often of ten',
  'for (let i = 0; i < n; i++) {\n\treturn x?.[i] ?? "é";\n}\n',
  '{"city": "München", "temp": -3.5e2, "ok": [true, null]}',
  '<tool_call>\n{"name": "search", "arguments": {"q": "日本語"}}\n</tool_call>',
  '👩‍👩‍👧‍👦 ünï cafe\u0301 \u200b مرحبا',
  '  \n\n  ',
  '<|im_star',
  'right before the\r\nnext',
];

export const pick = <T>(random: Random, list: readonly T[]): T => list[Math.floor(random() * list.length)]!;

export const words = (random: Random): string =>
  Array.from({ length: 1 + Math.floor(random() * 4) }, () => pick(random, snippets)).join(random() < 0.5 ? ' ' : '');

/** How many trajectories there are, and how many of them are under way at once. */
const COUNT = Number(process.env['TURNOUT_TRAJECTORIES'] ?? often(400, 10_000));
const WIDE = 48;

export const trajectoryCount = COUNT;

/** Goes through all trajectories, many at once. */
export async function eachTrajectory(run: (n: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: WIDE }, async () => {
      while (next < COUNT) await run(next++);
    }),
  );
}

/** A line of an export in JSON. */
export interface Exported {
  readonly session: string;
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly rollout_log_probs: readonly (number | null)[];
}

/** All that is kept, by session. */
export async function exportedBySession(routerUrl: string): Promise<ReadonlyMap<string, readonly Exported[]>> {
  const jsonl = await (await fetch(`${routerUrl}/trajectories?format=jsonl`)).text();
  const lines = jsonl
    .split('\n')
    .filter((json) => json !== '')
    .map((json) => JSON.parse(json) as Exported);
  return Map.groupBy(lines, ({ session }) => session);
}
