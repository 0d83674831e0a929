// npm test -- suite:chaos: minutes of faults at both ends of a router, and overload; then everything must be accounted for.
import { parseArgs } from 'node:util';
import { runFaults, type FaultsPhase, type Outcome } from './faults-phase.ts';
import { runOverload } from './overload-phase.ts';
import { sabotages, type Sabotage } from './sabotage.ts';

const usage = `npm test -- suite:chaos [options]
  --minutes M           of chaos, and of the soak after it (10)
  --only PHASE,PHASE    chaos, soak, overload
  --overload-seconds S  at five times what fits (120, less where --minutes is less)
  --rps N               requests a second of the soak (1000)
  --policy NAME         of the router in chaos and soak (its default)
  --seed N              the same chance again
  --prove               instead: sabotages the router in every way that must be noticed`;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    only: { type: 'string', default: 'chaos,soak,overload' },
    'overload-seconds': { type: 'string' },
    rps: { type: 'string', default: '1000' },
    policy: { type: 'string' },
    seed: { type: 'string' },
    prove: { type: 'boolean', default: false },
    sabotage: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

const say = (line: string): void => {
  process.stdout.write(`${line}\n`);
};
const minutes = Number(values.minutes);
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
const options = values.policy === undefined ? {} : { policy: values.policy };
/** A busy process of a machine with more processes than cores is resident in steps; a leak is seen in the heap first. */
const limits = { usedMbPerMinute: 1, rssMbPerMinute: 1, loopP99Ms: 20 };
const common = { seed, patienceMs: 60_000, sampleMs: 5_000, sabotage: null, say } as const;

const chaos: FaultsPhase = {
  ...common,
  name: 'chaos',
  seconds: minutes * 60,
  load: { clients: 200 },
  engines: 6,
  faultScale: 1,
  eventGapMs: 1000,
  serviceMs: (random) => 20 + random() * 1200,
  events: (random) => 2 + Math.floor(random() * 40),
  options,
  limits: { ...limits, rssMbPerMinute: Infinity },
};

const soak: FaultsPhase = {
  ...chaos,
  name: 'soak',
  seed: seed + 1,
  load: { perSecond: Number(values.rps) },
  faultScale: 0.3,
  eventGapMs: 4000,
  serviceMs: (random) => 10 + random() * 100,
  events: (random) => 2 + Math.floor(random() * 6),
  // Less than ten bytes a request at its usual pace: what policies remember of it does not grow any more.
  limits: { ...limits, usedMbPerMinute: 0.5 },
};

function report(name: string, { figures, complaints }: Outcome): void {
  say(`\n${name}: ${complaints.length === 0 ? 'passed' : `FAILED, ${complaints.length} complaints`}`);
  for (const figure of figures) say(`  ${figure}`);
  for (const complaint of complaints.slice(0, 20)) say(`  ! ${complaint}`);
  if (complaints.length > 20) say(`  ! and ${complaints.length - 20} more`);
}

async function prove(): Promise<boolean> {
  let isProven = true;
  for (const [what, expected] of Object.entries(sabotages) as [Sabotage, RegExp][]) {
    if (values.sabotage !== undefined && what !== values.sabotage) continue;
    const outcome = await runFaults({
      ...chaos,
      name: what,
      seconds: 12,
      patienceMs: 30_000,
      sampleMs: 1_000,
      sabotage: what,
      // A process that has just begun grows by itself; by less than this.
      limits: { ...limits, usedMbPerMinute: 40, rssMbPerMinute: 200, minJudgedMs: 8_000 },
    });
    const found = outcome.complaints.find((complaint) => expected.test(complaint));
    isProven &&= found !== undefined;
    if (found === undefined) for (const figure of outcome.figures) say(`  ${figure}`);
    say(
      `${found === undefined ? 'NOT NOTICED' : 'noticed'}: ${what}: ${found?.split('\n')[0] ?? outcome.complaints.slice(0, 3).join('; ')}`,
    );
  }
  return isProven;
}

async function main(): Promise<boolean> {
  say(`seed ${seed}`);
  if (values.prove) return prove();
  let isWell = true;
  const wanted = values.only.split(',');
  const phases: [string, () => Promise<Outcome>][] = [
    ['chaos', () => runFaults(chaos)],
    ['soak', () => runFaults(soak)],
    ['overload', () => runOverload({ seed: seed + 2, seconds: overloadSeconds(), say })],
  ];
  for (const [name, run] of phases) {
    if (!wanted.includes(name)) continue;
    const outcome = await run();
    report(name, outcome);
    isWell &&= outcome.complaints.length === 0;
  }
  say(isWell ? '\npassed' : `\nFAILED (seed ${seed})`);
  return isWell;
}

const overloadSeconds = (): number => Number(values['overload-seconds'] ?? Math.min(120, minutes * 30));

if (values.help) say(usage);
// At once: engines that flap and clients that try again may go on without end.
else process.exit((await main()) ? 0 : 1);
