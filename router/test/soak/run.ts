// npm test -- suite:soak: everything at once, for half an hour, compared with the engines' own log.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { machine } from '../../../bench/machine.ts';
import { seededRandom } from '../../src/kit/rng.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { Verdict } from './check.ts';
import { Counts, type SoakScene, chats, completions, deaths, exporter, swapper, tinker } from './clients.ts';
import { SoakFleet } from './fleet.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '30' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    clients: { type: 'string', default: '16' },
    /** Where the report goes; without it: to the terminal only. */
    out: { type: 'string' },
  },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new Error('--minutes must be a number above 0');

/** The memory of the last fifth of the run beside that of the second fifth, in which caches are full. */
const MAX_GROWTH = 1.15;

interface Sample {
  readonly atSecs: number;
  readonly rssMb: number;
  readonly openFiles: number;
}

function sampleOf({ pid }: ChildProcess, beganMs: number): Sample {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return {
    atSecs: (performance.now() - beganMs) / 1000,
    rssMb: Number(/^VmRSS:\s+(\d+)/m.exec(status)![1]) / 1024,
    openFiles: readdirSync(`/proc/${pid}/fd`).length,
  };
}

const median = (numbers: readonly number[]): number => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? NaN;

/** @returns the medians of the second and of the last fifth */
function fifths(samples: readonly Sample[], of: (sample: Sample) => number): [number, number] {
  const fifth = Math.floor(samples.length / 5);
  const list = samples.map(of);
  return [median(list.slice(fifth, 2 * fifth)), median(list.slice(-fifth))];
}

const folder = mkdtempSync(join(tmpdir(), 'turnout-soak-'));
const tokenizer = join(folder, 'tokenizer');
writeTokenizer(tokenizer);
const fleet = await SoakFleet.start(['vllm', 'vllm', 'sglang', 'sglang']);
const router = spawn(
  process.execPath,
  [
    join(import.meta.dirname, '../../bin/turnout.js'),
    'serve',
    '--port',
    '0',
    '--prometheus-port',
    '0',
    '--worker-urls',
    ...fleet.urls,
    '--tokenizer-path',
    tokenizer,
    '--plugin',
    'chat-sessions',
    'radix-tree:{"completions":true}',
    '--data-dir',
    join(folder, 'data'),
    '--swap-snapshots',
    '/snapshots/{identity}',
    '--resume',
    'on',
    '--tinker',
    '--health-check-interval-secs',
    '5',
  ],
  { stdio: ['ignore', 'pipe', 'pipe'] },
);
let log = '';
for (const stream of [router.stdout, router.stderr]) {
  stream.on('data', (part: Buffer) => {
    log = (log + part.toString()).slice(-200_000);
  });
}
let hasExited = false;
void once(router, 'exit').then(() => (hasExited = true));
while (!/listening on http/.test(log) && !hasExited) await delay(50);
const url = /listening on (http:\/\/[^\s"]+)/.exec(log)?.[1];
if (url === undefined) throw new Error(`the router did not start:\n${log}`);

const beganMs = performance.now();
const endMs = beganMs + minutes * 60_000;
const random = seededRandom(Number(values.seed));
const scene: SoakScene = {
  url,
  fleet,
  random,
  verdict: new Verdict(),
  counts: new Counts(),
  isOver: () => performance.now() >= endMs || hasExited,
};
const { verdict, counts } = scene;
console.log(`soak: ${minutes} minutes, seed ${values.seed}, router ${url}`);
const samples: Sample[] = [];
const watch = setInterval(() => {
  if (hasExited) return;
  samples.push(sampleOf(router, beganMs));
  if (samples.length % 6 !== 0) return;
  const { rssMb, openFiles, atSecs } = samples.at(-1)!;
  const state = `${counts.requests} requests, ${verdict.tokens} tokens compared, ${counts.swaps} swaps, ${fleet.deaths} deaths, ${verdict.seams} seams`;
  console.log(
    `${atSecs.toFixed(0)} s: ${state}, ${rssMb.toFixed(0)} MB, ${openFiles} files, ${verdict.examples.length} problems`,
  );
}, 5_000);

const failures: string[] = [];
const works = [
  ...Array.from({ length: Number(values.clients) }, (_, i) =>
    i % 2 === 1 ? completions(scene, `p${i}`) : chats(scene, `c${i}`),
  ),
  tinker(scene),
  exporter(scene, 10_000),
  swapper(scene, 10_000),
  deaths(scene, 8_000),
];
const ends = await Promise.allSettled(works);
for (const end of ends) if (end.status === 'rejected') failures.push(String(end.reason));
clearInterval(watch);

const [rssBefore, rssAfter] = fifths(samples, ({ rssMb }) => rssMb);
const [filesBefore, filesAfter] = fifths(samples, ({ openFiles }) => openFiles);
if (hasExited) failures.push(`the router ended:\n${log.slice(-4_000)}`);
if (rssAfter > rssBefore * MAX_GROWTH)
  failures.push(`memory grew from ${rssBefore.toFixed(0)} to ${rssAfter.toFixed(0)} MB`);
if (counts.hangs > 0) failures.push(`${counts.hangs} requests hung`);
if (!verdict.isClean) failures.push('the record differs from the engines’ log');
if ([verdict.tokens, verdict.seams, counts.swaps, fleet.deaths, counts.tinkerSamples].includes(0))
  failures.push('a part of the load did not run');

const report = `# Soak

${machine()}. \`npm test -- suite:soak --minutes ${minutes} --seed ${values.seed}\`: chats with one and three choices, completions that \`--resume\`
continues, and Tinker samples on two simulated vLLM and two SGLang engines, while weights are swapped, engines are killed, clients
disconnect, and everything is exported. The router has its default heap. Each token on record is compared with the engines' own log.

| what | count |
| --- | ---: |
| requests, sessions | ${counts.requests}, ${counts.sessions} |
| refused or without a response; truncated; left by their clients | ${counts.refused}; ${counts.truncated}; ${counts.left} |
| weight swaps, engines killed, exports (MB) | ${counts.swaps}, ${fleet.deaths}, ${counts.exports} (${(counts.exportedBytes / 1e6).toFixed(0)}) |
| turns and sampled tokens compared | ${verdict.turns}, ${verdict.tokens} |
| places where another engine continued a turn | ${verdict.seams} |
| wrong tokens, logprobs, versions | ${verdict.wrongTokens}, ${verdict.wrongLogprobs}, ${verdict.wrongVersions} |
| tokens whose version is null | ${verdict.unknownVersions} |
| complete responses that are not on record | ${verdict.missing} |
| Tinker samples, their tokens, failed calls | ${counts.tinkerSamples}, ${verdict.tinkerTokens}, ${counts.tinkerFailed} |
| requests that hung | ${counts.hangs} |
| resident memory, second fifth of the run and last | ${rssBefore.toFixed(0)}, ${rssAfter.toFixed(0)} MB |
| open files, likewise | ${filesBefore}, ${filesAfter} |

${failures.length === 0 ? 'Passed.' : `**Failed:** ${failures.join('; ')}`}
${verdict.examples.map((line) => `\n- ${line}`).join('')}
`.trimEnd();
console.log(report);
if (values.out !== undefined) writeFileSync(values.out, `${report}\n`);
router.kill('SIGKILL');
if (!hasExited) await once(router, 'exit');
await fleet.close();
rmSync(folder, { recursive: true, force: true });
process.exit(failures.length === 0 ? 0 : 1);
