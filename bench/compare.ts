// npm run bench -- compare: the cost of turnout and of its peers on this machine, with the same load generator.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { measureStarts } from './measure.ts';
import { buildPrograms } from './native.ts';
import { installPeers } from './peers.ts';
import { renderReport, type RowResult } from './report.ts';
import { rows, type Contender, type Row, type SystemName } from './rows.ts';
import { FEED_ROW, measureFeed } from './feed/measure.ts';
import { RADIX_ROW, measureRadix } from './radix-tree/measure.ts';
import { SATURATION_ROW, measureSaturation } from './saturation/measure.ts';
import { STREAMS_ROW, measureStreams } from './streams.ts';
import { findSystem, type Found } from './systems.ts';

const usage = `npm run bench -- compare [options]
  --only ROW,ROW     ${[...rows.map((row) => row.name), STREAMS_ROW, SATURATION_ROW, RADIX_ROW, FEED_ROW].join(', ')}
  --peers A,B        which peers to measure beside turnout (default: all that are installed; "none" for none)
  --runs N           interleaved runs (5)
  --starts N         so many times, with new processes (1): for differences of a few percent
  --seconds S        length of one measurement (3)
  --install-peers    installs the peers' pinned versions into bench/.peers first
  --before DIR       measures the turnout of another checkout, with its packages installed, in the same runs
  --turnout-cmd CMD  another command in turnout's place; {port}, {urls} and {args} are filled in
  --out FILE         where the report goes

Peers are taken from the virtual environment that TURNOUT_PEERS_VENV names, else from bench/.peers, else from PATH.
Only a whole benchmark (every row, all peers, 5 runs or more) writes bench/report.md; any other prints its tables, so that
a quick look never replaces a report.`;

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    peers: { type: 'string' },
    runs: { type: 'string', default: '5' },
    starts: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '3' },
    'install-peers': { type: 'boolean', default: false },
    'turnout-cmd': { type: 'string' },
    before: { type: 'string' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

/** Rows that are measured differently. */
const special = new Set([STREAMS_ROW, SATURATION_ROW, RADIX_ROW, FEED_ROW]);
const isChosen = (name: string): boolean => values.only?.split(',').includes(name) ?? true;

/** Takes about as long as the other rows. */
const RADIX_REQUESTS = 10_000;
/** A gigabyte of groups. */
const FEED_PENDING_TURNS = 10_400;

function chosenRows(): Row[] {
  const names = values.only?.split(',').filter((name) => !special.has(name)) ?? rows.map((row) => row.name);
  return names.map((name) => {
    const row = rows.find((each) => each.name === name);
    if (!row) throw new Error(`no row is called ${name}\n\n${usage}`);
    return row;
  });
}

/** A build before this one takes turns with it: a ratio of two runs apart would compare two hours of the machine. */
function withBefore(contender: Contender): Contender[] {
  if (values.before === undefined || contender.system !== 'turnout') return [contender];
  return [contender, { ...contender, label: `${contender.label}, before`, system: 'turnout-before' }];
}

function positive(name: 'runs' | 'starts' | 'seconds'): number {
  const value = Number(values[name]);
  if (!(value > 0)) throw new Error(`--${name} must be a number above 0`);
  return value;
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

async function main(): Promise<void> {
  const runs = positive('runs');
  const starts = positive('starts');
  const seconds = positive('seconds');
  const chosen = chosenRows();
  const wanted = values.peers?.split(',');
  if (values['install-peers']) installPeers();
  buildPrograms();

  const found = new Map<SystemName, Found | undefined>();
  function find(name: SystemName): Found | undefined {
    if (!found.has(name)) found.set(name, findSystem(name, { command: values['turnout-cmd'], before: values.before }));
    return found.get(name);
  }

  const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const results: RowResult[] = [];
  for (const each of chosen) {
    const contenders = each.contenders
      .filter(({ system }) => system === 'turnout' || system === 'node-copy' || (wanted?.includes(system) ?? true))
      .flatMap(withBefore);
    const row: Row = { ...each, contenders };
    const rowFolder = join(folder, row.name);
    mkdirSync(rowFolder);
    const measured = await measureStarts(starts, {
      row,
      runs,
      seconds,
      folder: rowFolder,
      find: ({ system }) => find(system),
      say,
    });
    results.push({ row, contenders: measured });
  }

  const streamsFolder = join(folder, STREAMS_ROW);
  mkdirSync(streamsFolder);
  const isWanted = (system: SystemName): boolean => system === 'turnout' || (wanted?.includes(system) ?? true);
  const streams = isChosen(STREAMS_ROW) ? await measureStreams({ isWanted, find, folder: streamsFolder, say }) : [];
  const saturation = isChosen(SATURATION_ROW)
    ? await measureSaturation({ isWanted, find, runs, seconds, folder: join(folder, SATURATION_ROW), say })
    : [];
  const radix = isChosen(RADIX_ROW)
    ? await measureRadix({ requests: RADIX_REQUESTS, rounds: runs, folder: join(folder, RADIX_ROW), say })
    : null;
  const feed = isChosen(FEED_ROW) ? await measureFeed(FEED_PENDING_TURNS, say) : null;

  const isWhole =
    values.only === undefined &&
    wanted === undefined &&
    values['turnout-cmd'] === undefined &&
    values.before === undefined &&
    runs >= 5;
  const file = values.out ?? (isWhole ? join(import.meta.dirname, 'report.md') : undefined);
  const report = renderReport(results, { streams, saturation, radix, feed }, { runs, starts, seconds });
  if (file === undefined) process.stdout.write(report);
  else writeFileSync(file, report);
  if (file !== undefined) say(`written: ${file}`);
}

if (values.help) {
  process.stdout.write(`${usage}\n`);
} else {
  await main().catch((error: unknown) => {
    say(error instanceof Error ? error.message : String(error));
    process.exitCode = 1;
  });
}
