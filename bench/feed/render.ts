import { median } from '../median.ts';
import { FEED_ROW, type FeedResult, delayTarget, memoryOver, memoryTarget } from './measure.ts';

const title = 'The feed: groups of 8 sessions, each of one turn';

const at = (sorted: readonly number[], part: number): number => sorted[Math.floor((sorted.length - 1) * part)]!;
const metWord = (isMet: boolean): string => (isMet ? 'yes' : '**no**');

export function feedTargetLines(result: FeedResult | null): string[][] {
  if (result === null) return [];
  const delay = median(result.delays);
  const more = memoryOver(result);
  const way = `≤ ${delayTarget} ms from the end of a group to its consumer, at 200 turns a second`;
  const memory = `≤ ${memoryTarget} MB for 1 GB of pending groups`;
  return [
    [title, 'turnout', way, delay.toFixed(1), metWord(delay <= delayTarget)],
    [title, 'turnout', memory, more.toFixed(0), metWord(more <= memoryTarget)],
  ];
}

export function feedSection(result: FeedResult | null): string[] {
  if (result === null) return [];
  const rows = [result.tree, result.feed].map(({ name, micros, memory: [before, after, stored] }) => {
    const spread = `${Math.min(...micros).toFixed(0)} – ${Math.max(...micros).toFixed(0)}`;
    const grown = `${before.toFixed(0)} → ${after.toFixed(0)}`;
    return `| ${name} | **${median(micros).toFixed(0)}** | ${spread} | ${grown} | ${stored.toFixed(0)} |`;
  });
  const [middle, late] = [median(result.delays).toFixed(1), at(result.delays, 0.99).toFixed(1)];
  return [
    `## ${title} (\`${FEED_ROW}\`)`,
    `CPU of the router with all of its threads per turn, with turns in SQLite: 460 tokens of prompt, 64 of answer, and the end of the session
with its reward. With the feed the session also joins a group, and a consumer takes the group as NDJSON and acknowledges it. Memory:
resident MB with a tenth of the turns (8,000 tokens each) in the store, and with all, while no consumer takes their groups.`,
    [
      '| plugins | CPU µs per turn | min – max | resident MB | stored MB |',
      '| --- | ---: | ---: | ---: | ---: |',
      ...rows,
    ].join('\n'),
    `From the call that ends the last session of a group to a consumer that waits: ${middle} ms, p99 ${late} ms, at 200 turns a second.`,
  ];
}
