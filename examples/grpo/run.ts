import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type EngineKind, whyNoEngines } from '../../router/test/real/installed.ts';
import { experts } from './experts.ts';
import { install, python, runOf, say, student } from './programs.ts';
import { train } from './train.ts';

/**
 * `npm run example:grpo -- [options]`: a model learns two-step arithmetic with a calculator. Agent and trainer are programs of
 * their own, `rollouts.py` and `trainer.py`, and share the router; two real engines on the CPU, a swap after each step, and one
 * of the engines is killed halfway and started again. Then the same without turnout's part of it (`baseline.py`), and a report.
 */

const options = {
  engine: { type: 'string', default: 'vllm' },
  steps: { type: 'string', default: '18' },
  /** Groups of a step, of eight sessions each. */
  groups: { type: 'string', default: '8' },
  /** A training of each. */
  seeds: { type: 'string', default: '1' },
  out: { type: 'string', default: 'out/grpo' },
  'no-baseline': { type: 'boolean', default: false },
  /** Also: routed experts of a mixture-of-experts model on SGLang. */
  experts: { type: 'boolean', default: false },
  'student-steps': { type: 'string', default: '500' },
  'report-only': { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
} as const;

const HELP = `npm run example:grpo -- [options]
  --engine vllm|sglang   the two engines (vllm)
  --seeds 1,2,3          a training with each (1); about ten minutes each on two cores, with its comparison
  --steps N              of a training (18)
  --groups N             of a step, eight sessions each (8)
  --no-baseline          without the comparison
  --experts              also routed experts of a small mixture-of-experts model on SGLang, three minutes
  --out FOLDER           of the report (out/grpo)
  --report-only          the report of what is in FOLDER
  --student-steps N      of the supervised training before (500), kept in the cache
`;

/** A whole number from 1. */
function count(name: string, text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`--${name} is a whole number from 1, not ${text}`);
  return Number(text);
}

async function main(): Promise<void> {
  const { values: flags } = parseArgs({ options });
  if (flags.help) {
    process.stdout.write(HELP);
    return;
  }
  const kind = flags.engine as EngineKind;
  if (kind !== 'vllm' && kind !== 'sglang') throw new Error(`--engine is vllm or sglang, not ${flags.engine}`);
  const [steps, groups] = [count('steps', flags.steps), count('groups', flags.groups)];
  const seeds = flags.seeds.split(',').map((seed) => String(count('seeds', seed)));
  count('student-steps', flags['student-steps']);
  const out = resolve(flags.out);
  const reason = (await whyNoEngines()) || (await install());
  if (reason !== false) throw new Error(reason);
  if (!flags['report-only']) {
    const base = await student(flags['student-steps']);
    for (const seed of seeds) {
      const work = { kind, base, seed, steps, groups };
      for (const way of flags['no-baseline'] ? (['turnout'] as const) : (['turnout', 'baseline'] as const)) {
        const folder = join(out, `seed-${seed}`, way);
        rmSync(folder, { recursive: true, force: true });
        mkdirSync(folder, { recursive: true });
        say(`seed ${seed}, ${way === 'turnout' ? 'with turnout' : 'the comparison'}: ${folder}`);
        await train({ ...work, way, out: folder });
      }
    }
    if (flags.experts) await experts(join(out, 'experts'));
    const machine = { cpu: cpus()[0]?.model ?? 'unknown', cores: cpus().length, node: process.version, engine: kind };
    writeFileSync(join(out, 'machine.json'), JSON.stringify(machine));
  }
  await runOf(python('report.py', [out]), say);
}

await main().catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
});
