// npm run bench -- pickers: turnout's endpoint picker beside those of the Gateway API Inference Extension and of llm-d, before the same Envoy.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { binary, whyNotBuilt } from '../../router/test/harness/built.ts';
import { buildPrograms } from '../native.ts';
import { type Contender, contenders } from './contenders.ts';
import { measureLoad } from './load.ts';
import { measureMakespans } from './makespan.ts';
import { loadReport, makespanReport } from './report.ts';

const names = contenders.map(({ name }) => name).join(', ');
const usage = `npm run bench -- pickers [options]
  --install-peers  builds lwepp and llm-d's picker first: needs Go 1.26 (bench/pickers/build.sh)
  --only A,B       of ${names} (default: all that are installed)
  --rate N         requests a second (1000)
  --seconds S      length of one measurement (5)
  --rounds N       measurements of each, alternating (3)
  --makespan       in place of that, a batch of sessions on simulated engines, once for each picker: about a minute each
  --out FILE       where the report goes

Envoy is installed first, lwepp needs the Kubernetes API server of npm test -- suite:k8s, which is built then. Only a whole benchmark (all
pickers, 1,000 requests a second, 3 rounds or more) writes bench/pickers/report.md or makespan.md; any other prints its table.`;

const { values } = parseArgs({
  options: {
    'install-peers': { type: 'boolean', default: false },
    only: { type: 'string' },
    rate: { type: 'string', default: '1000' },
    seconds: { type: 'string', default: '5' },
    rounds: { type: 'string', default: '3' },
    makespan: { type: 'boolean', default: false },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

const say = (line: string): void => void process.stderr.write(`${line}\n`);

function positive(name: 'rate' | 'seconds' | 'rounds'): number {
  const value = Number(values[name]);
  if (!(value > 0)) throw new Error(`--${name} must be a number above 0`);
  return value;
}

const usual = contenders.filter(({ skipsBatch }) => !values.makespan || skipsBatch !== true);

function chosen(): readonly Contender[] {
  const wanted = values.only?.split(',');
  const unknown = wanted?.filter((name) => !contenders.some((each) => each.name === name)) ?? [];
  if (unknown.length > 0) throw new Error(`--only ${unknown.join(',')}: choose from ${names}`);
  return contenders
    .filter((each) => wanted?.includes(each.name) ?? usual.includes(each))
    .filter(({ name, picker }) => {
      const program = picker?.program;
      if (program === undefined || existsSync(binary('pickers', program))) return true;
      say(`${name} is left out: ${program} is not installed (--install-peers builds it)`);
      return false;
    });
}

async function need(script: string, what: string): Promise<void> {
  const missing = await whyNotBuilt(script, what);
  if (missing !== false) throw new Error(missing);
}

async function main(): Promise<void> {
  const settings = { rate: positive('rate'), seconds: positive('seconds'), rounds: positive('rounds') };
  if (values['install-peers']) await need('../../bench/pickers/build.sh', 'the other pickers');
  const found = chosen();
  await need('envoy/install.sh', 'Envoy');
  if (found.some(({ picker }) => picker?.program === 'lwepp')) await need('k8s/build.sh', 'the Kubernetes API server');
  const folder = mkdtempSync(join(tmpdir(), 'turnout-pickers-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const isAll = found.length === usual.length;
  if (values.makespan)
    return finish('makespan.md', isAll, makespanReport(await measureMakespans(found, { folder, say })));
  buildPrograms();
  const { envoyVersion, results } = await measureLoad(found, { ...settings, folder, say });
  const isWhole = isAll && settings.rate === 1000 && settings.rounds >= 3;
  finish('report.md', isWhole, loadReport(results, envoyVersion, settings));
}

function finish(file: string, isWhole: boolean, report: string): void {
  const path = values.out ?? (isWhole ? join(import.meta.dirname, file) : undefined);
  if (path === undefined) process.stdout.write(report);
  else {
    writeFileSync(path, report);
    say(`written: ${path}`);
  }
}

if (values.help) process.stdout.write(`${usage}\n`);
else
  await main().catch((error: unknown) => {
    say(`bench: ${(error as Error).message}`);
    process.exitCode = 1;
  });
process.exit();
