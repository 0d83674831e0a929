import assert from 'node:assert/strict';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord, SequenceScript } from '../../../simulator/src/model/sequence.ts';
import { freePort } from '../harness/free-port.ts';
import type { Generated, Journal } from './journal.ts';

/** The id that a client gave its call: vLLM writes more around it. */
const callOf = (id: string): string => id.replace(/^(chat)?cmpl-/, '').replace(/-0$/, '');

export type EngineKind = 'sglang' | 'sglang-incremental' | 'vllm';

/** Simulated engines that are killed and come back at the same address, and what all of them really sampled. */
export class Engines {
  /** By the name of the call: what is sampled for it. */
  readonly scripts = new Map<string, SequenceScript>();
  deaths = 0;
  readonly #engines: SimEngine[] = [];
  readonly #journal: Journal;
  #changing: Promise<void> = Promise.resolve();
  #version = 1;

  static async start(kinds: readonly EngineKind[], journal: Journal): Promise<Engines> {
    const engines = new Engines(journal);
    for (const [i, kind] of kinds.entries()) {
      const incrementalStreamingOutput = kind === 'sglang-incremental';
      const options = { kind: kind === 'vllm' ? kind : 'sglang', incrementalStreamingOutput, seed: i + 1 } as const;
      engines.#engines.push(await engines.#engine({ ...options, port: await freePort() }));
    }
    return engines;
  }

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  get urls(): string[] {
    return this.#engines.map(({ url }) => url);
  }

  /** Ends a generation wherever it is. */
  abort(call: string): void {
    for (const { core } of this.#engines) core.abort((job) => callOf(job.id) === call);
  }

  /** Lets one go on that rests. */
  release(call: string): void {
    for (const { core } of this.#engines) core.release((job) => callOf(job.id) === call);
  }

  /** Kills the engine that works for a call; another one takes its place. */
  replaceServing(call: string): Promise<void> {
    const at = this.#engines.findIndex(({ core }) => core.unfinished().some((one) => callOf(one.requestId) === call));
    if (at < 0) return this.#changing;
    return this.#change(async () => {
      const engine = this.#engines[at]!;
      const { port, core } = engine;
      for (const record of core.unfinished()) this.#journal.generated.push(generatedOf(record, engine, true));
      this.#journal.changes.push({ engineUrl: engine.url, atMs: performance.now() });
      await engine.kill();
      this.deaths++;
      const { kind, incrementalStreamingOutput, seed } = core.options;
      // Another one, so its batches are others.
      this.#engines[at] = await this.#engine({ kind, incrementalStreamingOutput, seed: seed + 100, port });
    });
  }

  /** New weights for all engines, as a trainer gives them: past the router, in the middle of whatever runs. */
  update(): Promise<void> {
    return this.#change(async () => {
      const version = String(++this.#version);
      for (const { url, core } of this.#engines) {
        this.#journal.changes.push({ engineUrl: url, atMs: performance.now() });
        const steps: [string, object][] =
          core.options.kind === 'vllm'
            ? [
                ['/pause?mode=keep', {}],
                ['/collective_rpc', { method: 'reload_weights', kwargs: { weights_path: `weights ${version}` } }],
                ['/update_weight_version', { new_version: version }],
                ['/resume', {}],
              ]
            : [
                ['/pause_generation', { mode: 'in_place' }],
                ['/update_weights_from_distributed', { weight_version: version, flush_cache: false }],
                ['/continue_generation', {}],
              ];
        for (const [path, body] of steps) {
          // A connection of its own: one that is kept may be to an engine that was killed since.
          const headers = { connection: 'close' };
          const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
          assert.equal(response.status, 200, await response.text());
        }
      }
    });
  }

  /** Every engine that was killed is replaced, and every update is through. */
  settled(): Promise<void> {
    return this.#changing;
  }

  async close(): Promise<void> {
    await this.#changing;
    await Promise.all(this.#engines.map((engine) => engine.close()));
  }

  #change(work: () => Promise<void>): Promise<void> {
    this.#changing = this.#changing.then(work);
    return this.#changing;
  }

  async #engine(
    options: Pick<SimOptions, 'kind' | 'port' | 'incrementalStreamingOutput' | 'seed'>,
  ): Promise<SimEngine> {
    const engine: SimEngine = await startSimEngine({
      ...options,
      timeScale: 0,
      weightVersion: String(this.#version),
      weightLoadMs: 0,
      // What two requests of the same tokens sampled can be told apart.
      logprobNoise: 0.01,
      script: (requestId, index) => (index === 0 ? this.scripts.get(callOf(requestId)) : undefined),
      onFinished: (record) => this.#journal.generated.push(generatedOf(record, engine, false)),
    });
    return engine;
  }
}

function generatedOf(record: FinishedRecord, { url, core }: SimEngine, isTorn: boolean): Generated {
  const { requestId, inputIds, outputIds, logprobs, weightVersions, finish } = record;
  const versions = weightVersions.flatMap(({ version, start, end }) =>
    Array.from({ length: end - start }, () => version),
  );
  const { kind } = core.options;
  const call = callOf(requestId);
  return { call, engineUrl: url, kind, inputIds, outputIds, logprobs, versions, finish: finish.type, isTorn };
}
