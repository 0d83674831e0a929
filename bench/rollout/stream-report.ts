// bench/rollout/stream-report.md: a stream of sessions with each policy, virtually and over sockets.
import { cpus } from 'node:os';
import { machine } from '../machine.ts';
import { spread } from '../policies/spread.ts';
import type { StreamMetrics } from '../policies/stream-meter.ts';
import { type Comparison, inPercent, loadTable, markdown, mean } from './report.ts';
import { type Scene, engineCount, streamSlots, weight } from './scene.ts';
import { installation } from './thunder-agent.ts';
import { type Figure, streamFaults, streamMargin } from './verdict.ts';
import type { Outcome } from './virtual.ts';

/** What must agree. */
const figures: Readonly<Record<string, (stream: StreamMetrics) => number>> = {
  'turns per hour': ({ turnsPerHour }) => turnsPerHour,
  'p95 of session seconds': ({ sessionSeconds }) => sessionSeconds.p95,
};

const both = ({ virtual, sockets }: Comparison, figure: (outcome: Outcome) => number): Omit<Figure, 'name'> => {
  const { mean: middle, deviation } = spread(virtual.map(figure));
  return { virtual: middle, deviation, sockets: figure(sockets) };
};

export function faultsOf(comparisons: readonly Comparison[]): string[] {
  const found = comparisons.flatMap((comparison) =>
    Object.entries(figures).map(([name, figure]): Figure => {
      const title = `${comparison.contender.name}, ${name}`;
      return { name: title, ...both(comparison, ({ stream }) => figure(stream!)) };
    }),
  );
  return streamFaults(found);
}

/** What agrees, and the rest of what a trainer asks of a stream. */
export function streamTables(comparisons: readonly Comparison[]): string {
  const agreement = comparisons.map((comparison) => [
    comparison.contender.name,
    ...Object.values(figures).flatMap((figure) => {
      const { virtual, deviation, sockets } = both(comparison, ({ stream }) => figure(stream!));
      const ratio = (sockets / virtual).toFixed(3);
      return [`${virtual.toFixed(0)} ± ${deviation.toFixed(0)}`, sockets.toFixed(0), ratio];
    }),
  ]);
  const rest = comparisons.map((comparison) => {
    const { contender, virtual, sockets } = comparison;
    const twice = (figure: (outcome: Outcome) => number): string =>
      `${mean(virtual, figure).toFixed(0)} / ${figure(sockets).toFixed(0)}`;
    return [
      contender.name,
      twice(({ stream }) => stream!.groupsPerHour),
      twice(({ stream }) => stream!.sessionSeconds.p50),
      twice(({ stream }) => stream!.sessionSeconds.max),
      twice(({ stream }) => stream!.oldestOpen),
      twice(({ longestHold }) => longestHold),
      `${inPercent(mean(virtual, ({ stream }) => stream!.hitShare))} / ${inPercent(sockets.stream!.hitShare)}`,
      String(sockets.retries),
    ];
  });
  const titles = ['turns/h, virtual', 'over sockets', 'ratio', 'session p95 s, virtual', 'over sockets', 'ratio'];
  const more = ['groups/h', 'session p50 s', 'max', 'oldest open s', 'longest hold s', 'hit %', 'retries'];
  return [markdown(['policy', ...titles], agreement), markdown(['virtual / over sockets', ...more], rest)].join('\n\n');
}

export function agreementText(faults: readonly string[]): string {
  const margin = `${100 * streamMargin} %, or within two deviations of the virtual runs`;
  if (faults.length === 0) return `**They agree**: every figure of the first table is within ${margin}.`;
  return `**They disagree**: not every figure of the first table is within ${margin}.\n\n${faults.map((fault) => `- ${fault}`).join('\n')}`;
}

export function renderStreamReport({ trace, engine, timeScale }: Scene, comparisons: readonly Comparison[]): string {
  const { seconds, warmUpSeconds } = trace.stream!;
  const first = comparisons[0]!;
  return `# A stream of sessions over sockets, and ThunderAgent

${new Date().toISOString().slice(0, 10)} · ${machine()}

As [report.md](report.md), for a stream: a client begins a session whenever one ends. \`thunder_agent\` is ThunderAgent's own code in
turnout's place; its virtual run is the model of it in bench/policies.

${streamTables(comparisons)}

${agreementText(faultsOf(comparisons))}

## What is played

- Stream: ${streamSlots} clients, each with one session at a time of the stream-2x of bench/policies, ${seconds} simulated seconds, of which the
  first ${warmUpSeconds} are not measured. A session begins when another has ended.
- Fleet: ${engineCount} simulated vLLM engines with ${engine.kvTokens / 1000}k KV tokens, half of what the sessions want to hold on average. An engine has a quarter
  of the sessions of stream-2x, so a sequence, a KV token and a prompt token cost ${weight} times as much: the fleet is as busy.
- Over sockets: one run, in which each policy has its own engines; a simulated second takes ${timeScale} s. Requests are streamed chats
  of exactly the tokens that the trace says, an event of a stream has 8 tokens. turnout gets \`x-session-id\`, and the session end signal with the last turn; ThunderAgent gets
  \`program_id\`, and \`POST /programs/release\` after the last turn. Clients send a turn again as the OpenAI client does, after a
  status of 500 or an error of the connection.
- Virtual: the mean of ${first.virtual.length} runs ± their deviation; the first as it is, the others with tool calls up to 60 ms longer.
- ThunderAgent: the last commit of 2026-02-11, with the line mended at which its resume raises an error, its options as they are by
  default; its interval of 5 s lasts 5 simulated seconds.
- A hold lasts until the engine has read the turn (over sockets to ${0.5 / timeScale} simulated seconds). \`oldest open\`: the largest age of a session.

## Processor time over sockets

In cores, of ${cpus().length}. A machine that is full makes everything late, and shows here.

${loadTable(comparisons)}

## How to repeat

\`\`\`sh
${installation}
npm ci
npm run bench -- rollout --stream --thunder-agent DIR   # ${Math.ceil((seconds * timeScale) / 60)} minutes
\`\`\`
`;
}
