// bench/rollout/report.md: both results of a batch with each policy, whether they agree, and how they were measured.
import { cpus } from 'node:os';
import { machine } from '../machine.ts';
import { spread } from '../policies/spread.ts';
import { type Contender, type Scene, engineCount, seed, tasks, weight } from './scene.ts';
import type { SocketOutcome } from './sockets.ts';
import { type Verdict, judge, makespanMargin, orderMargin } from './verdict.ts';
import type { Outcome } from './virtual.ts';

export interface Comparison {
  readonly contender: Contender;
  /** One for each variant of the trace. */
  readonly virtual: readonly Outcome[];
  readonly sockets: SocketOutcome;
}

export const inPercent = (share: number): string => (100 * share).toFixed(1);
const cores = (load: number): string => load.toFixed(2);

export function mean(outcomes: readonly Outcome[], value: (outcome: Outcome) => number): number {
  return spread(outcomes.map(value)).mean;
}

export function verdictOf(comparisons: readonly Comparison[]): Verdict {
  return judge(
    comparisons.map(({ contender, virtual, sockets }) => ({
      name: contender.name,
      virtual: mean(virtual, ({ makespan }) => makespan),
      sockets: sockets.makespan,
    })),
  );
}

const titles = [
  'policy',
  'makespan s, virtual',
  'over sockets',
  'ratio',
  'hit %, virtual',
  'over sockets',
  'preemptions, virtual',
  'over sockets',
];

export function makespanTable(comparisons: readonly Comparison[]): string {
  const rows = comparisons.map(({ contender, virtual, sockets }) => {
    const makespan = spread(virtual.map((outcome) => outcome.makespan));
    return [
      contender.name,
      `${makespan.mean.toFixed(1)} ± ${makespan.deviation.toFixed(1)}`,
      sockets.makespan.toFixed(1),
      (sockets.makespan / makespan.mean).toFixed(3),
      inPercent(mean(virtual, ({ hitShare }) => hitShare)),
      inPercent(sockets.hitShare),
      mean(virtual, ({ preemptions }) => preemptions).toFixed(0),
      String(sockets.preemptions),
    ];
  });
  return markdown(titles, rows);
}

export function loadTable(comparisons: readonly Comparison[]): string {
  const head = ['policy', 'engines', 'router', 'clients', 'other work', 'real seconds'];
  const rows = comparisons.map(({ contender, sockets: { load, realSeconds } }) => [
    contender.name,
    cores(load.engines),
    cores(load.router),
    cores(load.clients),
    cores(load.others),
    realSeconds.toFixed(0),
  ]);
  return markdown(head, rows);
}

export function markdown(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const rule = head.map((_, i) => (i === 0 ? '---' : '---:'));
  return [head, rule, ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

export function verdictText({ faults, ordered }: Verdict): string {
  if (faults.length > 0) return `**They disagree.**\n\n${faults.map((fault) => `- ${fault}`).join('\n')}`;
  const order = `every two policies that differ by more than ${100 * orderMargin} % (${ordered} pairs) are in the same order`;
  return `**They agree**: ${order}, and every makespan is within ${100 * makespanMargin} %.`;
}

export function renderReport({ trace, engine, timeScale }: Scene, comparisons: readonly Comparison[]): string {
  const first = comparisons[0]!;
  const kv = engine.kvTokens / 1000;
  return `# The simulation of policies, checked over sockets

${new Date().toISOString().slice(0, 10)} · ${machine()}

bench/policies tells how good policies are on a virtual clock. Here one batch is played twice: there, and by clients that talk
to simulated engines through a running router. Both choose with the same shipped policies. The same for a stream of sessions, and
beside ThunderAgent: [stream-report.md](stream-report.md).

${makespanTable(comparisons)}

${verdictText(verdictOf(comparisons))}

## What is played

- Batch: ${trace.sessions.length} sessions of the agent trace (its first ${tasks} tasks, seed ${seed}), ${first.sockets.turns} turns.
  The seed was chosen among 38 by virtual runs: its batch is short, and its policies lie apart and keep their order when clients
  are late. In other batches cache_aware or rollout tip from one makespan to another by chance.
- Fleet: ${engineCount} simulated vLLM engines with ${kv}k KV tokens, half of what the sessions want to hold on average, as in the agent trace
  on 8 engines with 450k. An engine has ${trace.sessions.length / engineCount} sessions instead of ${(trace.sessions.length / engineCount) * weight}, so a sequence, a KV token and a prompt token cost ${weight} times
  as much as there: the fleet is as busy.
- Over sockets: one run; a simulated second takes ${timeScale} s. Clients, \`turnout serve\` and each simulated engine are processes of
  their own. Requests are streamed chats of exactly the tokens that the trace says, an event of a stream has 8 tokens; the last turn
  of a session says that it is the last.
- Virtual: the mean of ${first.virtual.length} runs ± their deviation. The first plays the batch as it is, the others make tool calls up to
  60 ms longer, as timers and sockets do: what that does to a makespan can't be foretold. The clock runs at the same scale as
  over sockets, because policies have constants in seconds.
- \`rollout\`: the batch ran before, and the router was started again with its \`--data-dir\`; the engines begin empty.
  \`rollout_first\`: nothing ran before.
- Hits are counted at a request's first admission over sockets, at each one in virtual time. Engines over sockets never give
  out memory twice, those in virtual time do for a moment when a cached prefix comes back to use: hence more preemptions.

## Processor time over sockets

In cores, of ${cpus().length}. A machine that is full makes everything late, and shows here.

${loadTable(comparisons)}

## How to repeat

\`\`\`sh
npm ci
npm run bench -- rollout              # about 10 minutes
npm run bench -- rollout --quick   # two policies, a short batch, no report
\`\`\`
`;
}
