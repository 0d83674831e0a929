// npm run bench -- decisions: what a decision costs, by the numbers of workers and of open sessions, in one process
// without sockets. CPU time of the process; the median of the rounds, and their range.
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { PolicyName } from '../../router/src/config/options/policy-names.ts';
import { memoryUsed } from '../../router/test/harness/memory-used.ts';
import { machine } from '../machine.ts';
import { median } from '../median.ts';
import { ENOUGH_KV_TOKENS, Scene, USUAL_GROUP } from './scene.ts';

const { values } = parseArgs({
  options: {
    policies: { type: 'string', default: 'rollout,cache_aware' },
    /** WORKERS:SESSIONS, or WORKERS:SESSIONS:KV_TOKENS where so few that turns are held, and :GROUP_SIZE */
    scenes: { type: 'string', default: '4:64,400:6400,400:6400:6000,4:3000:150000:100000,1000:16000,1000:250000' },
    rounds: { type: 'string', default: '15' },
    decisions: { type: 'string', default: '4000' },
  },
});

const heapBytes = async (): Promise<number> => {
  memoryUsed();
  // The memory of typed arrays is freed later.
  await sleep(500);
  return memoryUsed();
};

/** A function of its own, so that nothing keeps the scene before in memory. */
async function measure(
  name: PolicyName,
  [workers = 0, sessions = 0, kvTokens = ENOUGH_KV_TOKENS, groupSize = USUAL_GROUP]: readonly number[],
): Promise<string> {
  const scene = new Scene(name, workers, sessions, kvTokens, groupSize);
  const empty = await heapBytes();
  scene.openAll();
  const each = ((await heapBytes()) - empty) / sessions;
  scene.measure(20_000);
  const rounds = Array.from({ length: Number(values.rounds) }, () => scene.measure(Number(values.decisions)));
  const range = `${Math.min(...rounds).toFixed(1)} – ${Math.max(...rounds).toFixed(1)}`;
  const line = `${name}  ${workers} workers  ${sessions} sessions in groups of ${groupSize}  ${median(rounds).toFixed(1)} µs (${range})  ${Math.round(each)} B a session`;
  return scene.held === 0 ? line : `${line}  ${scene.held} held`;
}

console.log(machine());
for (const name of values.policies.split(',')) {
  for (const scene of values.scenes.split(',')) {
    console.log(await measure(name as PolicyName, scene.split(':').map(Number)));
  }
}
