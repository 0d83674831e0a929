import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';

/** What an engine did for one request: its own log. */
export interface Sampled {
  readonly engineUrl: string;
  readonly inputIds: readonly number[];
  readonly outputIds: readonly number[];
  readonly logprobs: readonly number[];
  /** The engine's name of its weights, of each output token. */
  readonly versions: readonly string[];
}

/** The name that a client gave its request: vLLM writes more around it. */
const nameOf = (requestId: string): string => requestId.replace(/^(chat)?cmpl-/, '').replace(/-\d+$/, '');

/** Simulated engines that are killed and come back with the weights of their start, and what each of them sampled. */
export class SoakFleet {
  readonly #engines: SimEngine[] = [];
  readonly #log = new Map<string, Sampled[]>();
  readonly #byPrompt = new Map<string, Sampled[]>();
  deaths = 0;
  generations = 0;

  static async start(kinds: readonly SimOptions['kind'][]): Promise<SoakFleet> {
    const fleet = new SoakFleet();
    for (const [i, kind] of kinds.entries()) {
      fleet.#engines.push(await fleet.#start({ kind, seed: i + 1, port: 0, model: `sim-${kind}` }));
    }
    return fleet;
  }

  get urls(): string[] {
    return this.#engines.map(({ url }) => url);
  }

  /** What engines sampled for the request of this name, in any order. */
  of(name: string): readonly Sampled[] {
    return this.#log.get(name) ?? [];
  }

  /** What they sampled after this prompt. */
  after(prompt: readonly number[]): readonly Sampled[] {
    return this.#byPrompt.get(prompt.join()) ?? [];
  }

  forget(names: Iterable<string>): void {
    for (const name of names) {
      for (const { inputIds } of this.of(name)) this.#byPrompt.delete(inputIds.join());
      this.#log.delete(name);
    }
  }

  forgetPrompt(prompt: readonly number[]): void {
    this.#byPrompt.delete(prompt.join());
  }

  /** The engine that has sampled the most for a request that has not ended. */
  get longest(): number {
    const lengths = this.#engines.map(({ core }) =>
      Math.max(0, ...core.unfinished().map(({ outputIds }) => outputIds.length)),
    );
    return lengths.indexOf(Math.max(...lengths));
  }

  /** As a crash of its machine: connections are reset. It comes back at its address when `back` settles. */
  async die(index: number, back: Promise<void>): Promise<void> {
    const engine = this.#engines[index]!;
    const { port, core } = engine;
    for (const record of core.unfinished()) this.#note(record, engine.url);
    await engine.kill();
    this.deaths++;
    await back;
    const { kind, seed, model } = core.options;
    this.#engines[index] = await this.#start({ kind, seed: seed + 100, port, model });
  }

  async close(): Promise<void> {
    await Promise.all(this.#engines.map((engine) => engine.close()));
  }

  async #start(options: Pick<SimOptions, 'kind' | 'seed' | 'port' | 'model'>): Promise<SimEngine> {
    const engine: SimEngine = await startSimEngine({
      ...options,
      timeScale: 0.1,
      weightLoadMs: 3_000,
      // What two requests of the same tokens sampled can be told apart.
      logprobNoise: 0.01,
      onFinished: (record) => this.#note(record, engine.url),
    });
    return engine;
  }

  #note({ requestId, inputIds, outputIds, logprobs, weightVersions }: FinishedRecord, engineUrl: string): void {
    const versions = weightVersions.flatMap(({ version, start, end }) =>
      Array.from({ length: end - start }, () => version),
    );
    const sampled = { engineUrl, inputIds, outputIds, logprobs, versions };
    this.generations++;
    const name = nameOf(requestId);
    this.#log.set(name, [...this.of(name), sampled]);
    this.#byPrompt.set(inputIds.join(), [...this.after(inputIds), sampled]);
  }
}
