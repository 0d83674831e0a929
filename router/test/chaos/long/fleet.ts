import { setTimeout as delay } from 'node:timers/promises';
import { addWorker, removeWorker } from './control.ts';
import { ChaosEngine, type EngineWorld } from './engine.ts';

/** Engines always have some that are well: what is tested is the router, not what nobody could save. */
const MIN_WELL = 3;
const MAX_ENGINES = 10;
/** Below the ports that the system gives to outgoing connections: a dead engine's port must stay nobody's. */
const FIRST_PORT = 20_000;
const PORTS = 12_000;

/** Engines that come, go, die and fall ill by chance. */
export class ChaosFleet {
  readonly engines: ChaosEngine[] = [];
  readonly events: Record<string, number> = {};
  readonly #world: EngineWorld;
  readonly #routerPort: number;
  readonly #pending = new Set<Promise<void>>();
  /** Something is happening to them, though they may be well for a moment. */
  readonly #busy = new Set<ChaosEngine>();
  #isOver = false;

  constructor(world: EngineWorld, routerPort: number) {
    this.#world = world;
    this.#routerPort = routerPort;
  }

  /** One of them stands still now, one that is being removed too. */
  get isStalled(): boolean {
    return this.engines.some((engine) => engine.isStalled);
  }

  async add(): Promise<void> {
    const { random } = this.#world;
    for (;;) {
      const engine = new ChaosEngine(FIRST_PORT + Math.floor(random() * PORTS), this.#world);
      if (!(await engine.start())) continue;
      this.engines.push(engine);
      await addWorker(this.#routerPort, engine.url);
      return;
    }
  }

  /** Every so often something happens, until `end`. */
  async conduct(gapMs: number): Promise<void> {
    const { random } = this.#world;
    while (!this.#isOver) {
      await delay(gapMs * (0.5 + random()));
      if (!this.#isOver) this.#happen();
    }
  }

  /** Everything is well again. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#pending);
  }

  async removeAll(): Promise<void> {
    await Promise.all(this.engines.splice(0).map(async (engine) => this.#remove(engine)));
  }

  /** Kills what is left, so that nothing keeps this process alive. */
  close(): void {
    for (const engine of this.engines) engine.kill();
  }

  #happen(): void {
    const { random } = this.#world;
    const well = this.engines.filter((engine) => engine.isWell && !this.#busy.has(engine));
    const one = well[Math.floor(random() * well.length)];
    const dice = random();
    if (dice < 0.1 && this.engines.length < MAX_ENGINES) this.#do('added', async () => this.add());
    else if (one === undefined || well.length <= MIN_WELL) return;
    else if (dice < 0.2 && this.engines.length > MIN_WELL + 2) {
      this.engines.splice(this.engines.indexOf(one), 1);
      this.#do('removed', async () => this.#remove(one), one);
    } else if (dice < 0.45) this.#do('killed', async () => this.#killed(one), one);
    else if (dice < 0.6) {
      this.#do(
        'stalled',
        async () => {
          one.setStalled(true);
          await delay(500 + random() * 5000);
          one.setStalled(false);
        },
        one,
      );
    } else if (dice < 0.75) {
      this.#do(
        'slowed',
        async () => {
          one.slowness = 2 + random() * 2;
          await delay(2000 + random() * 5000);
          one.slowness = 1;
        },
        one,
      );
    } else if (dice < 0.9) {
      this.#do(
        '5xx burst',
        async () => {
          one.sickness = 0.5 + random() / 2;
          await delay(1000 + random() * 4000);
          one.sickness = 0;
        },
        one,
      );
    } else {
      this.#do(
        'health refused',
        async () => {
          one.isHealthRefused = true;
          await delay(1000 + random() * 4000);
          one.isHealthRefused = false;
        },
        one,
      );
    }
  }

  async #killed(engine: ChaosEngine): Promise<void> {
    const { random } = this.#world;
    engine.kill();
    // Some flap: up for a moment, then down again.
    const times = random() < 0.3 ? 4 : 1;
    for (let n = 0; n < times; n++) {
      await delay(300 + random() * 3000);
      while (!(await engine.start())) await delay(100);
      if (n + 1 === times) return;
      await delay(200 + random() * 800);
      engine.kill();
    }
  }

  /** A removed worker finishes what it has; then no connection to it is left. */
  async #remove(engine: ChaosEngine): Promise<void> {
    await removeWorker(this.#routerPort, engine.url);
    const deadline = performance.now() + 40_000;
    while (engine.sockets.size > 0 && performance.now() < deadline) await delay(50);
    if (engine.sockets.size > 0)
      this.#world.journal.complain(
        `leaked: ${engine.sockets.size} connections to a removed engine, 40 s later: ${[...engine.sockets].join(', ')}`,
      );
    engine.kill();
  }

  #do(what: string, run: () => Promise<void>, engine?: ChaosEngine): void {
    this.events[what] = (this.events[what] ?? 0) + 1;
    if (engine !== undefined) this.#busy.add(engine);
    const pending = run().catch((error: unknown) =>
      this.#world.journal.complain(`the run itself: ${what}: ${error as Error}`),
    );
    this.#pending.add(pending);
    void pending.then(() => {
      this.#pending.delete(pending);
      if (engine !== undefined) this.#busy.delete(engine);
    });
  }
}
