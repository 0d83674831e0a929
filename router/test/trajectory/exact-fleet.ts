import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { freePort } from '../harness/free-port.ts';

/** What an engine sampled until it died. */
export type Torn = Pick<FinishedRecord, 'requestId' | 'inputIds' | 'outputIds'>;

/** The id that a client gave its call: vLLM writes more around it. */
const callOf = (id: string): string => id.replace(/^(chat)?cmpl-/, '').replace(/-0$/, '');

/** Simulated engines that die now and then and come back at the same address, and what all of them really sampled. */
export class MortalFleet {
  /** By the id of the request; of several tries the one that ended. */
  readonly log = new Map<string, FinishedRecord>();
  /** What died with its engine, by the same. */
  readonly torn = new Map<string, Torn>();
  readonly engines: SimEngine[] = [];
  /** Calls whose engine is to die: each rests in the middle until that happens. The first comes for sure. */
  readonly doomed = new Set<string>();
  deaths = 0;
  #dying: Promise<void> = Promise.resolve();

  /** @param kinds one for each engine */
  static async start(kinds: readonly SimOptions['kind'][]): Promise<MortalFleet> {
    const fleet = new MortalFleet();
    for (const [i, kind] of kinds.entries())
      fleet.engines.push(
        await fleet.#engine({ kind, port: await freePort(), incrementalStreamingOutput: i % 2 === 1 }),
      );
    return fleet;
  }

  get urls(): string[] {
    return this.engines.map(({ url }) => url);
  }

  /** Kills one, in the middle of whatever it does; another one takes its place. */
  replace(at: number): Promise<void> {
    this.#dying = this.#dying.then(async () => {
      const { port, core } = this.engines[at]!;
      await this.engines[at]!.kill();
      this.deaths++;
      const { running, resting } = core.scheduler;
      for (const { id, prompt, output } of [...running, ...resting])
        this.torn.set(callOf(id), { requestId: id, inputIds: [...prompt], outputIds: [...output] });
      const { kind, incrementalStreamingOutput } = core.options;
      this.engines[at] = await this.#engine({ kind, port, incrementalStreamingOutput });
    });
    return this.#dying;
  }

  /** Kills the one that works for a request. */
  replaceServing(requestId: string): void {
    const at = this.engines.findIndex(({ core }) =>
      core.unfinished().some((one) => callOf(one.requestId) === requestId),
    );
    if (at >= 0) void this.replace(at);
  }

  /** Ends a generation wherever it is. @returns false: it is nowhere */
  abort(requestId: string): boolean {
    return this.engines.some(({ core }) => core.abort((job) => callOf(job.id) === requestId) > 0);
  }

  async close(): Promise<void> {
    await this.#dying;
    await Promise.all(this.engines.map((engine) => engine.close()));
  }

  #engine(options: Pick<SimOptions, 'kind' | 'port' | 'incrementalStreamingOutput'>): Promise<SimEngine> {
    return startSimEngine({
      ...options,
      // A token takes about a millisecond: time to be aborted in, or to die.
      timeScale: 0.1,
      variedSampling: true,
      retokenizationDrift: true,
      meanOutputTokens: 12,
      script: (requestId) => (this.doomed.has(callOf(requestId)) ? { ids: [], holdAt: 20 } : undefined),
      onFinished: (record) => this.log.set(callOf(record.requestId), record),
    });
  }
}
