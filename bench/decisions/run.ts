// node --expose-gc bench/decisions/run.ts: what a decision costs, by the numbers of workers and of open sessions, in one process
// without sockets. CPU time of the process; the median of the rounds, and their range.
import { parseArgs } from 'node:util';
import type { PolicyName } from '../../router/src/config/options/policy-names.ts';
import { machine } from '../machine.ts';
import { Scene } from './scene.ts';

const { values } = parseArgs({
  options: {
    policies: { type: 'string', default: 'rollout,cache_aware' },
    /** WORKERS:SESSIONS */
    scenes: { type: 'string', default: '4:64,400:6400,1000:16000,1000:250000' },
    rounds: { type: 'string', default: '15' },
    decisions: { type: 'string', default: '4000' },
  },
});

const heapBytes = (): number => {
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!;
}

console.log(machine());
for (const name of values.policies.split(',')) {
  for (const scene of values.scenes.split(',')) {
    const [workers = 0, sessions = 0] = scene.split(':').map(Number);
    const run = new Scene(name as PolicyName, workers, sessions);
    const empty = heapBytes();
    run.openAll();
    const each = (heapBytes() - empty) / sessions;
    run.measure(20_000);
    const rounds = Array.from({ length: Number(values.rounds) }, () => run.measure(Number(values.decisions)));
    const line = `${name}  ${workers} workers  ${sessions} sessions  ${median(rounds).toFixed(1)} µs (${Math.min(...rounds).toFixed(1)} – ${Math.max(...rounds).toFixed(1)})  ${Math.round(each)} B a session`;
    console.log(run.held === 0 ? line : `${line}  ${run.held} held`);
  }
}
