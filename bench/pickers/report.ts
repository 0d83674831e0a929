// bench/pickers/report.md and makespan.md.
import { machine } from '../machine.ts';
import { median } from '../median.ts';
import { markdown } from '../rollout/report.ts';
import { engineCount, tasks } from '../rollout/scene.ts';
import type { Contender } from './contenders.ts';
import { BODY_BYTES, CONNECTIONS, ENGINES, type LoadResult, type LoadSample, SESSIONS } from './load.ts';
import type { MakespanResult } from './makespan.ts';

const VERSIONS = 'lwepp 1.6.0 (Gateway API Inference Extension), llm-d-router 0.10.0';

const picker = ({ picker: found }: Contender): string => found?.program ?? 'turnout';
const labelled = (contender: Contender): string[] => [
  contender.picker === null ? '–' : picker(contender),
  contender.does,
];

/** The median of the rounds, and between which values they are. */
function spread(samples: readonly LoadSample[], figure: (sample: LoadSample) => number, digits: number): string {
  const all = samples.map(figure);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  return `${median(all).toFixed(digits)} (${least.toFixed(digits)}–${most.toFixed(digits)})`;
}

interface Settings {
  readonly rate: number;
  readonly seconds: number;
  readonly rounds: number;
}

export function loadReport(
  results: readonly LoadResult[],
  envoyVersion: string,
  { rate, seconds, rounds }: Settings,
): string {
  const alone = results.find(({ contender }) => contender.picker === null)?.samples;
  const added = (figure: 'p50Ms' | 'p99Ms', samples: readonly LoadSample[]): string =>
    alone === undefined
      ? '–'
      : spread(
          samples.map((sample, i) => ({ ...sample, [figure]: sample[figure] - alone[i]![figure] })),
          (sample) => sample[figure],
          2,
        );
  const rows = results.map(({ contender, samples }) => [
    ...labelled(contender),
    contender.picker === null ? '–' : spread(samples, ({ pickerUs }) => pickerUs, 0),
    spread(samples, ({ envoyUs }) => envoyUs, 0),
    contender.picker === null ? `${spread(samples, ({ p50Ms }) => p50Ms, 2)} in all` : added('p50Ms', samples),
    contender.picker === null ? `${spread(samples, ({ p99Ms }) => p99Ms, 2)} in all` : added('p99Ms', samples),
    spread(samples, (sample) => sample.rate, 0),
    String(samples.reduce((sum, { failed }) => sum + failed, 0)),
  ]);
  const head = [
    'picker',
    'it',
    'picker, µs CPU',
    'Envoy, µs CPU',
    'added p50, ms',
    'added p99, ms',
    'requests/s',
    'failed',
  ];
  return `# Endpoint pickers before the same Envoy: CPU and latency

${new Date().toISOString().slice(0, 10)} · ${machine()}
Envoy ${envoyVersion}, ${VERSIONS}

${markdown(head, rows)}

Medians of ${rounds} rounds, in brackets the least and the most. The contenders alternate, and each is started anew in each round.

- Load: ${rate.toLocaleString('en-US')} requests a second in an open loop (a latency counts from the time when a request was due) over ${CONNECTIONS} connections, for ${seconds} s after a warm-up of 3 s:
  chats of ${BODY_BYTES} bytes of ${SESSIONS} sessions, named by \`x-session-id\`, with responses of 2 KB, which are checked byte by byte. Load generator,
  Envoy (one thread), picker and ${ENGINES} mock engines share the cores of this machine, with whatever else runs on it.
- CPU is that of the whole process in user and kernel mode per request. That of llm-d's picker contains its reading of the metrics of each engine every
  50 ms (its default); turnout's its health checks.
- Added latency: the difference to Envoy without a picker in the same round.
- TLS between Envoy and the pickers, with their own certificates, as they are by default. No logs, no traces.
- llm-d's picker has its default scorers and weights (queue 2, KV cache utilization 2, prefix cache 3), and its engines from a file (\`file-discovery\`).
  lwepp, which chooses in turn, has them from an InferencePool of a real kube-apiserver, which runs during the whole benchmark.
- Bodies are sent in Envoy's mode \`FULL_DUPLEX_STREAMED\`; \`consistent_hash\` gets none (\`NONE\`). lwepp 1.6.0 has no mode of these in which a request with a body succeeds: it answers headers only
  after the body, and a body without the bytes that \`FULL_DUPLEX_STREAMED\` expects (500; with \`BUFFERED\` and \`NONE\` requests wait until they time
  out). It is measured with \`STREAMED\`, \`send_body_without_waiting_for_header_response\` and the filter \`buffer\` before it, whose cost is in Envoy's figure.

How to repeat: \`npm run bench -- pickers --install-peers\` (Go 1.26, Linux). What the policies gain: [makespan.md](makespan.md).
`;
}

export function makespanReport(results: readonly MakespanResult[]): string {
  const [first] = results;
  const rollout = results.find(({ contender }) => contender.name === 'turnout-rollout')?.makespan;
  const rows = results.map((result) => [
    ...labelled(result.contender),
    result.makespan.toFixed(1),
    rollout === undefined ? '–' : (result.makespan / rollout).toFixed(2),
    (100 * result.hitShare).toFixed(1),
    String(result.preemptions),
    String(result.retries),
    result.otherCores.toFixed(2),
  ]);
  const head = [
    'picker',
    'it',
    'makespan, s',
    'of that of rollout',
    'cache hits, %',
    'preemptions',
    'sent again',
    'other work, cores',
  ];
  const { trace, engine, timeScale } = first!.scene;
  return `# Endpoint pickers before the same Envoy: the makespan of a batch

${new Date().toISOString().slice(0, 10)} · ${machine()}
Envoy ${first!.envoyVersion}, ${VERSIONS}

${markdown(head, rows)}

- Batch: the one of [bench/rollout](../rollout/report.md), played once for each picker: ${trace.sessions.length} sessions of the agent trace (its first ${tasks} tasks), ${first!.turns} turns, on
  ${engineCount} simulated vLLM engines with ${engine.kvTokens / 1000}k KV tokens, half of what the sessions hold on average. Makespans are in simulated seconds; one takes ${timeScale} s.
- Clients, Envoy, picker and engines are processes of their own. Requests are streamed chats; the header \`x-session-id\` names the session, and its last
  turn says that it is the last. \`rollout\` has no earlier batch to learn from.
- Configurations and modes of Envoy are those of [report.md](report.md). "Other work" is what other processes of the machine used meanwhile.

How to repeat: \`npm run bench -- pickers --install-peers --makespan\` (Go 1.26, Linux).
`;
}
