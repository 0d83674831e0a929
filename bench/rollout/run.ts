// npm run bench -- rollout: does a running router behave as bench/policies predicts?
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { workerUrls } from './fleet.ts';
import { type Comparison, loadTable, makespanTable, renderReport, verdictOf, verdictText } from './report.ts';
import {
  type Contender,
  type Scene,
  batchContenders,
  batchScene,
  engineCount,
  streamContenders,
  streamScene,
} from './scene.ts';
import { type SocketOutcome, runOverSockets } from './sockets.ts';
import { agreementText, faultsOf, renderStreamReport, streamTables } from './stream-report.ts';
import { type ThunderAgent, installation, prepareThunderAgent } from './thunder-agent.ts';
import { runVirtual } from './virtual.ts';

const names = (contenders: readonly Contender[]): string[] => contenders.map(({ name }) => name);
const quickPolicies = ['least_inflight', 'rollout_first'];
const quickTurns = 4;
const streamSeconds = { whole: [840, 240], quick: [120, 40] } as const;

const usage = `npm run bench -- rollout [options]
  --policies X,Y       ${names(batchContenders).join(', ')} (default: all)
  --stream             a stream of sessions in place of a batch;
                       policies: ${names(streamContenders).join(', ')}
  --thunder-agent DIR  a checkout of ThunderAgent, for thunder_agent
  --at-once N          policies that are played at the same time (1; all of a stream, which mostly waits)
  --quick              ${quickPolicies.join(' and ')}, ${quickTurns} turns a session at most;
                       a stream lasts ${streamSeconds.quick[0]} simulated seconds
  --first-port N       port of the first engine; the others follow it (21801)
  --out FILE           where the report goes

Only a whole run writes bench/rollout/report.md or stream-report.md; any other prints its tables. Exits with 1 when the two
sides disagree. A checkout of ThunderAgent is made so:

${installation}`;

const { values } = parseArgs({
  options: {
    policies: { type: 'string' },
    stream: { type: 'boolean', default: false },
    'thunder-agent': { type: 'string' },
    'at-once': { type: 'string' },
    quick: { type: 'boolean', default: false },
    'first-port': { type: 'string', default: '21801' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

/** Virtual runs of a policy. */
const variants = values.stream ? 16 : 8;

function chosen(contenders: readonly Contender[]): readonly Contender[] {
  const usual = values.quick && !values.stream ? quickPolicies : names(contenders);
  const wanted = values.policies?.split(',') ?? usual;
  const unknown = wanted.filter((name) => !names(contenders).includes(name));
  if (unknown.length > 0) throw new Error(`no policy ${unknown.join(', ')}; there are ${names(contenders).join(', ')}`);
  const found = contenders.filter(({ name }) => wanted.includes(name));
  if (values['thunder-agent'] === undefined && found.some(({ policy }) => policy === null))
    throw new Error(
      `thunder_agent needs --thunder-agent DIR, or leave it out with --policies. DIR is made so:\n\n${installation}`,
    );
  return found;
}

function say(line: string): void {
  process.stderr.write(`${process.stderr.isTTY ? '\r\x1b[K' : ''}${line}\n`);
}

const folder = mkdtempSync(join(tmpdir(), 'turnout-rollout-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

let thunderAgent: ThunderAgent | null = null;

function folderOf({ name }: Contender): string {
  const own = join(folder, name);
  mkdirSync(own, { recursive: true });
  return own;
}

async function compare(scene: Scene, contender: Contender, firstPort: number): Promise<Comparison> {
  const { name, hasHistory } = contender;
  const virtual = Array.from({ length: variants }, (_, variant) =>
    runVirtual(scene, contender, workerUrls(firstPort), variant),
  );
  const overSockets = (batch: string): Promise<SocketOutcome> =>
    runOverSockets({
      scene,
      contender,
      batch,
      firstPort,
      folder: folderOf(contender),
      thunderAgent,
      onTurn: (done) => {
        if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${name}: ${done} turns`);
      },
    });
  if (hasHistory) {
    const { realSeconds } = await overSockets('');
    say(`${name}: earlier batch over sockets, which took ${realSeconds.toFixed(0)} s`);
  }
  const sockets = await overSockets(hasHistory ? 'later/' : '');
  say(`${name}: over sockets, which took ${sockets.realSeconds.toFixed(0)} s`);
  return { contender, virtual, sockets };
}

async function compareAll(scene: Scene, contenders: readonly Contender[]): Promise<Comparison[]> {
  const comparisons: Comparison[] = [];
  let next = 0;
  // One after the other, all have the same ports: rings and ties hash them.
  const drain = async (firstPort: number): Promise<void> => {
    for (let at = next++; at < contenders.length; at = next++) {
      comparisons[at] = await compare(scene, contenders[at]!, firstPort);
    }
  };
  const firstPort = Number(values['first-port']);
  const lanes = Number(values['at-once'] ?? (values.stream ? contenders.length : 1));
  await Promise.all(Array.from({ length: lanes }, (_, lane) => drain(firstPort + lane * engineCount)));
  return comparisons;
}

async function main(): Promise<void> {
  const contenders = values.stream ? streamContenders : batchContenders;
  const found = chosen(contenders);
  const peer = found.find(({ policy }) => policy === null);
  if (peer !== undefined) thunderAgent = prepareThunderAgent(values['thunder-agent']!, folderOf(peer));
  const [seconds, warmUpSeconds] = streamSeconds[values.quick ? 'quick' : 'whole'];
  const scene = values.stream ? streamScene(seconds, warmUpSeconds) : batchScene(values.quick ? quickTurns : Infinity);
  const comparisons = await compareAll(scene, found);
  const isWhole = found.length === contenders.length && !values.quick;
  const file = values.stream ? 'stream-report.md' : 'report.md';
  const out = values.out ?? (isWhole ? join(import.meta.dirname, file) : undefined);
  if (values.stream) {
    const faults = faultsOf(comparisons);
    console.log([streamTables(comparisons), loadTable(comparisons), agreementText(faults)].join('\n\n'));
    if (out !== undefined) writeFileSync(out, renderStreamReport(scene, comparisons));
    if (faults.length > 0) process.exitCode = 1;
    return;
  }
  const verdict = verdictOf(comparisons);
  console.log([makespanTable(comparisons), loadTable(comparisons), verdictText(verdict)].join('\n\n'));
  if (out !== undefined) writeFileSync(out, renderReport(scene, comparisons));
  if (verdict.faults.length > 0) process.exitCode = 1;
}

if (values.help) console.log(usage);
else await main();
