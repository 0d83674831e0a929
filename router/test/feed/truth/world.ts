import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { seededRandom } from '../../../src/kit/rng.ts';
import type { FeedStats } from '../../../src/observe/trainer-feed.ts';
import { writeTokenizer } from '../../../../simulator/src/tokens/tokenizer-files.ts';
import { Engines } from '../../exact/engines.ts';
import { Journal } from '../../exact/journal.ts';
import { KillableRouter } from '../../exact/killable-router.ts';
import type { FeedGroup } from '../../harness/feed-scene.ts';
import type { Fault } from './clients.ts';

export const GROUP = 8;
const JSON_TYPE = { 'content-type': 'application/json' };

/** What a client knows of its session in the end. */
export interface Session {
  readonly name: string;
  readonly group: string;
  /** Calls whose whole responses the client has. */
  readonly whole: string[];
  /** The reward that the router acknowledged; null: none. */
  reward: number | null;
  /** Its last request ends it. */
  readonly endsByHeader: boolean;
  /** It has a prompt that the feed's option `maxTokens` does not allow. */
  readonly isLong: boolean;
}

/** A group as a consumer got it. */
export interface Delivered {
  readonly group: FeedGroup;
  /** When the consumer asked (monotonic ms). */
  readonly askedMs: number;
}

/** An ack that was answered with 200. */
export interface Acked {
  readonly id: number;
  readonly atMs: number;
}

/** Clients, consumers, engines and a router that is killed, and what each of them saw. */
export class World {
  readonly sessions = new Map<string, Session>();
  readonly delivered: Delivered[] = [];
  readonly acked: Acked[] = [];
  readonly happened = { routerDeaths: 0, engineDeaths: 0, updates: 0, cuts: 0, nacks: 0, lapsed: 0, crashes: 0 };
  /** Of each fault the first one comes for sure, however few the calls are. */
  readonly due: Fault[] = ['cut', 'engine', 'update'];
  readonly journal = new Journal();
  readonly random: () => number;
  readonly #folder: string;
  #swaps = false;
  #isClosed = false;
  #step = 0;
  engines!: Engines;
  router!: KillableRouter;

  constructor(seed: number) {
    this.random = seededRandom(seed);
    this.#folder = mkdtempSync(join(tmpdir(), 'turnout-feed-'));
  }

  /** @param swaps the router swaps the weights; otherwise the engines get them past the router */
  async start(options: object, swaps: boolean): Promise<void> {
    this.#swaps = swaps;
    writeTokenizer(this.#folder);
    this.engines = await Engines.start(['sglang', 'sglang-incremental', 'sglang'], this.journal);
    const words = ['--worker-urls', ...this.engines.urls, '--tokenizer-path', this.#folder];
    words.push('--data-dir', join(this.#folder, 'data'), '--policy', 'least_inflight', '--capture-chat');
    words.push('--health-check-interval-secs', '1', '--plugin-timeout-ms', '60000');
    if (swaps) words.push('--swap-snapshots', '/snapshots/{identity}');
    words.push('--plugin', 'radix-tree', '--plugin', `feed:${JSON.stringify(options)}`);
    this.router = await KillableRouter.start(words, this.journal);
  }

  has(fault: Fault): boolean {
    const { routerDeaths, engineDeaths, updates, cuts } = this.happened;
    return { router: routerDeaths, engine: engineDeaths, update: updates, cut: cuts }[fault] > 0;
  }

  /** Kills the router; another one takes its place. */
  async killRouter(): Promise<void> {
    this.happened.routerDeaths++;
    await this.router.replace();
  }

  /** New weights for all engines, in the middle of whatever runs. */
  async update(): Promise<void> {
    this.happened.updates++;
    if (!this.#swaps) return this.engines.update();
    const { status, text } = await this.insist('/swap', { identity: `step-${++this.#step}` });
    assert.equal(status, 202, text);
  }

  /** Asks until the router answers: it may be killed meanwhile. */
  async insist(path: string, body: object): Promise<{ status: number; text: string }> {
    while (!this.#isClosed) {
      try {
        const response = await fetch(this.router.url + path, {
          method: 'POST',
          headers: JSON_TYPE,
          body: JSON.stringify(body),
        });
        const text = await response.text();
        if (response.status < 500) return { status: response.status, text };
      } catch {
        // It was killed.
      }
      await this.router.settled();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`${path}: the test has ended`);
  }

  async stats(): Promise<FeedStats> {
    return (await (await fetch(`${this.router.url}/feed/stats`)).json()) as FeedStats;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.router.close();
    await this.engines.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
