// npm run bench:rollout: does a running router behave as bench/policies predicts?
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { workerUrls } from './fleet.ts';
import { type Comparison, loadTable, makespanTable, renderReport, verdictOf, verdictText } from './report.ts';
import { type Contender, contenders, makeScene } from './scene.ts';
import { type SocketOutcome, runOverSockets } from './sockets.ts';
import { runVirtual } from './virtual.ts';

const names = contenders.map(({ name }) => name);
const quickPolicies = ['least_inflight', 'rollout_first'];
const quickTurns = 4;

const usage = `npm run bench:rollout -- [options]
  --policies X,Y   ${names.join(', ')} (default: all)
  --quick          ${quickPolicies.join(' and ')}, ${quickTurns} turns a session at most
  --first-port N   port of the first engine; the others follow it (21801)
  --out FILE       where the report goes

Only a whole run writes bench/rollout/report.md; any other prints its tables. Exits with 1 when the two sides disagree.`;

const { values } = parseArgs({
  options: {
    policies: { type: 'string' },
    quick: { type: 'boolean', default: false },
    'first-port': { type: 'string', default: '21801' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

/** Virtual runs of a policy. */
const variants = 8;

function chosen(): readonly Contender[] {
  const wanted = values.policies?.split(',') ?? (values.quick ? quickPolicies : names);
  const unknown = wanted.filter((name) => !names.includes(name));
  if (unknown.length > 0) throw new Error(`no policy ${unknown.join(', ')}; there are ${names.join(', ')}`);
  return contenders.filter(({ name }) => wanted.includes(name));
}

function say(line: string): void {
  process.stderr.write(`${process.stderr.isTTY ? '\r\x1b[K' : ''}${line}\n`);
}

async function main(): Promise<void> {
  const firstPort = Number(values['first-port']);
  const urls = workerUrls(firstPort);
  const scene = makeScene(values.quick ? quickTurns : Infinity);
  const turns = scene.trace.sessions.reduce((sum, session) => sum + session.turns.length, 0);
  const folder = mkdtempSync(join(tmpdir(), 'turnout-rollout-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

  const overSockets = (contender: Contender, batch: string): Promise<SocketOutcome> =>
    runOverSockets({
      scene,
      contender,
      batch,
      firstPort,
      folder,
      onTurn: (done) => {
        if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${contender.name}: ${done} of ${turns} turns`);
      },
    });

  const comparisons: Comparison[] = [];
  for (const contender of chosen()) {
    const virtual = Array.from({ length: variants }, (_, variant) => runVirtual(scene, contender, urls, variant));
    const makespans = virtual.map(({ makespan }) => makespan.toFixed(0)).join(', ');
    say(`${contender.name}: ${makespans} s virtual`);
    if (contender.hasHistory && !comparisons.some((earlier) => earlier.contender.policy === contender.policy)) {
      const { realSeconds } = await overSockets(contender, '');
      say(`${contender.name}: earlier batch over sockets, which took ${realSeconds.toFixed(0)} s`);
    }
    const sockets = await overSockets(contender, contender.hasHistory ? 'later/' : '');
    const { makespan, realSeconds } = sockets;
    say(`${contender.name}: ${makespan.toFixed(0)} s over sockets, which took ${realSeconds.toFixed(0)} s`);
    comparisons.push({ contender, virtual, sockets });
  }
  const verdict = verdictOf(comparisons);
  console.log([makespanTable(comparisons), loadTable(comparisons), verdictText(verdict)].join('\n\n'));
  const isWhole = comparisons.length === contenders.length && !values.quick;
  const out = values.out ?? (isWhole ? join(import.meta.dirname, 'report.md') : undefined);
  if (out !== undefined) writeFileSync(out, renderReport(scene, comparisons));
  if (verdict.faults.length > 0) process.exitCode = 1;
}

if (values.help) console.log(usage);
else await main();
