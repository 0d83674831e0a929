import { groupsIn } from '../../harness/feed-scene.ts';
import type { World } from './world.ts';

/** Up to which draw a consumer crashes, forgets a group, or gives it back. */
const CRASH = 0.05;
const LAPSE = 0.1;
const NACK = 0.2;

/** Takes groups as trainers do: most are acknowledged; some are given back, forgotten, or lost with their consumer. */
export class Consumer {
  /** From now on every group is acknowledged. */
  isCareful = false;
  readonly #world: World;
  readonly #name: string;
  #isOver = false;

  constructor(world: World, name: string) {
    this.#world = world;
    this.#name = name;
  }

  stop(): void {
    this.#isOver = true;
  }

  async run(): Promise<void> {
    while (!this.#isOver) {
      try {
        await this.#take();
      } catch {
        // The router was killed, or this consumer crashed in the middle of a response.
        await this.#world.router.settled();
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  /** Of each mishap the first one comes for sure: on a slow machine few responses have all groups. */
  #draw(): number {
    const { random, happened } = this.#world;
    return happened.crashes === 0 ? CRASH : happened.lapsed === 0 ? LAPSE : happened.nacks === 0 ? NACK : random();
  }

  async #take(): Promise<void> {
    const { router, delivered, happened } = this.#world;
    const drawn = this.isCareful ? 0.99 : this.#draw();
    const askedMs = performance.now();
    const crash = new AbortController();
    const query = `max_groups=4&wait_secs=0.5&lease_secs=1&consumer=${this.#name}`;
    const response = await fetch(`${router.url}/feed?${query}`, { signal: crash.signal });
    if (drawn <= CRASH) {
      happened.crashes++;
      const reader = response.body!.getReader();
      await reader.read();
      crash.abort();
      return;
    }
    const groups = groupsIn(await response.text());
    for (const group of groups) delivered.push({ group, askedMs });
    if (groups.length === 0) return;
    const leases = groups.map(({ lease }) => lease);
    if (drawn <= LAPSE) {
      happened.lapsed++;
      return;
    }
    const act = drawn <= NACK ? 'nack' : 'ack';
    const { text } = await this.#world.insist(`/feed/${act}`, { leases });
    if (act === 'nack') {
      happened.nacks++;
      return;
    }
    const { lost } = JSON.parse(text) as { lost: readonly string[] };
    const atMs = performance.now();
    for (const { id, lease } of groups) if (!lost.includes(lease)) this.#world.acked.push({ id, atMs });
  }
}
