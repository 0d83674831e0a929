import { type SimEngine, startSimEngine } from '../../src/sim/engine.ts';
import type { FinishedRecord } from '../../src/sim/sequence.ts';

/** Simulated engines that die now and then and come back at the same address, and what all of them really sampled. */
export class MortalFleet {
  /** By the id of the request; of several tries the one that ended. */
  readonly log = new Map<string, FinishedRecord>();
  readonly engines: SimEngine[] = [];
  deaths = 0;
  #dying: Promise<void> = Promise.resolve();

  static async start(count: number): Promise<MortalFleet> {
    const fleet = new MortalFleet();
    for (let i = 0; i < count; i++) fleet.engines.push(await fleet.#engine(0, i % 2 === 1));
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
      this.engines[at] = await this.#engine(port, core.options.incrementalStreamingOutput);
    });
    return this.#dying;
  }

  /** Kills the one that works for a request. */
  replaceServing(requestId: string): void {
    const at = this.engines.findIndex(({ core }) => core.scheduler.running.some(({ id }) => id === requestId));
    if (at >= 0) void this.replace(at);
  }

  /** Ends a generation wherever it is. */
  abort(requestId: string): void {
    for (const { core } of this.engines) core.abort((job) => job.id === requestId);
  }

  async close(): Promise<void> {
    await this.#dying;
    await Promise.all(this.engines.map((engine) => engine.close()));
  }

  #engine(port: number, incrementalStreamingOutput: boolean): Promise<SimEngine> {
    return startSimEngine({
      port,
      incrementalStreamingOutput,
      // A token takes about a millisecond: time to be aborted in, or to die.
      timeScale: 0.1,
      variedSampling: true,
      retokenizationDrift: true,
      meanOutputTokens: 12,
      onFinished: (record) => this.log.set(record.requestId, record),
    });
  }
}
