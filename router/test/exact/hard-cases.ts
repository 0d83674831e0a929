import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from '../harness/fast-check.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { chatDialect } from './chat-dialect.ts';
import { problemsOf } from './check.ts';
import { Client } from './clients.ts';
import { type EngineKind, Engines } from './engines.ts';
import { type Ending, Journal, type Row } from './journal.ts';
import { type Faults, type Plan, type Step, planOf, trajectoriesOf } from './plan.ts';
import { generateDialect } from './radix-dialect.ts';
import { KillableRouter } from './killable-router.ts';
import { smallest } from './smaller.ts';
import { type Scene, exported, sceneOf, testedHere } from './scene.ts';

export type PluginName = 'radix-tree' | 'chat-sessions';

export interface Wanted {
  readonly plugin: PluginName;
  readonly trajectories: number;
  readonly seed: number;
  readonly faults: Faults;
}

/** Of a hundred calls so many meet each of these. */
export const usualFaults: Faults = { leaves: 4, races: 3, mishaps: { aborted: 3, 'engine dies': 1, updated: 1 } };

/** The same on a router that is a process of its own, and is killed too. */
export const killFaults: Faults = {
  ...usualFaults,
  killed: 100,
  mishaps: { ...usualFaults.mishaps, 'router dies': 2, 'router dies after': 2 },
};

const GROUPS = 20;
/** Plans between two reports. */
const ROUND = 10;
/** How long a plan that fails is made smaller. */
const SHRINK_MS = 20_000;

const kinds: Readonly<Record<PluginName, fc.Arbitrary<readonly EngineKind[]>>> = {
  'radix-tree': fc.constantFrom(['sglang'], ['sglang-incremental'], ['sglang', 'sglang-incremental', 'sglang']),
  'chat-sessions': fc.constantFrom(['sglang'], ['vllm'], ['sglang', 'vllm', 'sglang']),
};

/** What came of it. */
export interface Done {
  readonly trajectories: number;
  readonly calls: number;
  readonly met: Readonly<Record<keyof typeof met, number>>;
}

/** What calls meet: how often it is in a journal. */
const met = {
  'clients that left': ({ calls }: Journal) => endings(calls, 'left'),
  'clients that went on at the finish reason': ({ calls }: Journal) => endings(calls, 'raced'),
  'generations whose engine was killed': ({ generated }: Journal) => generated.filter(({ isTorn }) => isTorn).length,
  'aborted generations': ({ generated }: Journal) => generated.filter(({ finish }) => finish === 'abort').length,
  'generations over a weight update': ({ generated }: Journal) =>
    generated.filter(({ versions }) => new Set(versions).size > 1).length,
};

const kindsMet = Object.keys(met) as (keyof typeof met)[];

const endings = (calls: Journal['calls'], ending: Ending): number =>
  [...calls.values()].filter((call) => call.ending === ending).length;

/** Runs plans until so many trajectories were compared; throws with the seed and the smallest plan that was found. */
export async function runHardCases(
  { plugin, trajectories, seed, faults }: Wanted,
  onRound: (done: Done) => void = () => {},
): Promise<Done> {
  const tokenizerPath = mkdtempSync(join(tmpdir(), 'turnout-exact-'));
  writeTokenizer(tokenizerPath);
  const counts = Object.fromEntries(kindsMet.map((kind) => [kind, 0])) as Record<keyof typeof met, number>;
  const done = { trajectories: 0, calls: 0, met: counts };
  const plans = planOf(kinds[plugin], faults, GROUPS);
  const compare = async (plan: Plan): Promise<void> => {
    const { journal, rows } = await runPlan(plan, { plugin, tokenizerPath });
    assert.deepEqual(problemsOf(journal, rows), []);
    done.trajectories += trajectoriesOf(plan);
    done.calls += journal.calls.size;
    for (const kind of kindsMet) counts[kind] += met[kind](journal);
  };
  try {
    for (let round = 0; done.trajectories < trajectories; round++) {
      const result = await fc.check(fc.asyncProperty(plans, compare), {
        seed: seed + round,
        numRuns: ROUND,
        // Real sockets are slow, and no two runs are the same: smaller plans are looked for below.
        endOnFailure: true,
      });
      onRound(done);
      if (!result.failed) continue;
      const [plan] = result.counterexample!;
      const error = result.errorInstance as Error;
      const failureOf = (one: Plan): Promise<Error | null> =>
        compare(one).then(
          () => null,
          (failure: Error) => failure,
        );
      const smaller = await smallest(plan, failureOf, performance.now() + SHRINK_MS);
      const found = smaller ?? { plan, error };
      const seen = smaller === null ? ' (passes when it is run again)' : '';
      const where = `${plugin}, --seed ${seed + round}, plan ${result.numRuns}${seen}`;
      throw new Error(`${where}:\n${found.error.message}\n${described(found.plan, found.error.message)}`);
    }
  } finally {
    rmSync(tokenizerPath, { recursive: true });
  }
  return done;
}

/** A plan for people: of it the groups that a message is about. */
function described({ engines, groups }: Plan, message: string): string {
  const named = groups.some((_, g) => message.includes(`g${g}s`));
  const lines = groups.flatMap(({ isNamed, samples }, g) =>
    named && !message.includes(`g${g}s`)
      ? []
      : samples.flatMap((steps, s) => [
          `g${g}s${s}${isNamed ? '' : ' (no session)'}`,
          ...steps.map((step) => `  ${stepJson(step)}`),
        ]),
  );
  return [engines.join(' '), ...lines].join('\n');
}

const usual: Partial<Step> = { back: 0, kept: 100, asksLogprobs: true, client: 'waits', mishap: 'none' };

/** What differs from the usual. */
const stepJson = (step: Step): string =>
  JSON.stringify(
    Object.fromEntries(Object.entries(step).filter(([name, value]) => usual[name as keyof Step] !== value)),
  );

interface Surroundings {
  readonly plugin: PluginName;
  readonly tokenizerPath: string;
}

/** What happened, and what is exported of it. */
export interface Outcome {
  readonly journal: Journal;
  readonly rows: readonly Row[];
}

/** Has clients, engines and a router do what a plan says. */
export async function runPlan(plan: Plan, { plugin, tokenizerPath }: Surroundings): Promise<Outcome> {
  const journal = new Journal();
  const engines = await Engines.start(plan.engines, journal);
  const dataDir = mkdtempSync(join(tmpdir(), 'turnout-exact-data-'));
  const router = plan.isKilled
    ? await KillableRouter.start(
        [
          '--worker-urls',
          ...engines.urls,
          '--tokenizer-path',
          tokenizerPath,
          '--plugin',
          plugin,
          '--data-dir',
          dataDir,
        ],
        journal,
      )
    : await testedHere({ workerUrls: engines.urls, tokenizerPath, plugin: [plugin] });
  const scene = sceneOf(router, engines, journal);
  try {
    await Promise.all(
      plan.groups.flatMap(({ samples, isNamed }, g) =>
        samples.map((script, s) =>
          clientOf(scene, plugin, `g${g}s${s}`, isNamed).then((run) => run(script, `group ${g}`)),
        ),
      ),
    );
    await Promise.all(scene.open);
    await router.idle();
    return { journal, rows: await exported(router.url) };
  } finally {
    scene.agent.destroy();
    await router.close();
    await engines.close();
    rmSync(dataDir, { recursive: true });
  }
}

async function clientOf(
  scene: Scene,
  plugin: PluginName,
  name: string,
  isNamed: boolean,
): Promise<Client<never>['run']> {
  if (plugin === 'radix-tree') {
    const client = new Client(scene, generateDialect, name, isNamed ? name : '');
    return (script, prompt) => client.run(script, prompt);
  }
  const begun = await fetch(`${scene.router.url}/sessions`, { method: 'POST', body: '{}' });
  const { session_id: session } = (await begun.json()) as { session_id: string };
  const client = new Client(scene, chatDialect, name, session, `/sessions/${session}`);
  return (script, prompt) => client.run(script, prompt);
}
