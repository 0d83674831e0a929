import { setTimeout as delay, setImmediate as nextTick } from 'node:timers/promises';
import type { Subscriber } from 'zeromq';
import { KvOrder } from './kv-events-order.ts';
import { lackOf } from './kv-events-package.ts';
import { type Numbered, type Zmq, readNumbered, replay, timeOf } from './kv-events-replay.ts';
import type { KvEvent } from './kv-events.ts';

export interface KvFeedOptions {
  /** `tcp://host:port` or `ipc://path` of the engine's publisher. */
  readonly endpoint: string;
  /** The engine connects to us, as vLLM does when its own endpoint names a host: `endpoint` is where we listen. */
  readonly binds?: boolean;
  readonly topic?: string;
  /** Where the engine gives out batches again that were missed; null: nowhere. */
  readonly replayEndpoint: string | null;
  /** Silence after which a replay is given up. */
  readonly replayTimeoutMs?: number;
}

/**
 * Why nothing is known of the engine's cache any more:
 * - `gap`: batches were missed and no replay brought them;
 * - `restarted`: another publisher answers, so the engine is another process;
 * - `disconnected`: the connection broke and there is no replay to tell what came meanwhile;
 * - `unreadable`: a batch could not be read.
 */
export type KvLoss = 'gap' | 'restarted' | 'disconnected' | 'unreadable';

export interface KvFeedListener {
  /** In the order in which they happened, none left out since the last loss. */
  readonly onEvents: (events: readonly KvEvent[]) => void;
  /** What came before is void. What comes next may not be complete: it continues blocks that were never told. */
  readonly onLost: (why: KvLoss) => void;
}

const REPLAY_TIMEOUT_MS = 5_000;
/** Batches that wait for a replay. More are thrown away, and asked for again. */
const MAX_HELD = 10_000;
const MAX_MESSAGE_BYTES = 67_108_864;
/** The feed works at most this long before others get their turn. */
const SLICE_MS = 4;
const RECONNECT_MS = 100;
const RECONNECT_MAX_MS = 5_000;
/** An engine whose machine vanished says no goodbye: it is asked this often whether it is there. */
const HEARTBEAT_MS = 5_000;

/**
 * Opens the feed of one worker. The package it needs is loaded only now: most routers have no use for it.
 *
 * @returns the feed, or words for the user on why it can't be had.
 */
export async function openKvEventFeed(
  options: KvFeedOptions,
  listener: KvFeedListener,
  load: () => Promise<Zmq> = () => import('zeromq'),
): Promise<KvEventFeed | string> {
  let zmq: Zmq;
  try {
    zmq = await load();
  } catch (error) {
    return lackOf(error);
  }
  const socket = new zmq.Subscriber({
    linger: 0,
    ipv6: true,
    maxMessageSize: MAX_MESSAGE_BYTES,
    reconnectInterval: RECONNECT_MS,
    reconnectMaxInterval: RECONNECT_MAX_MS,
    heartbeatInterval: HEARTBEAT_MS,
    heartbeatTimeout: 3 * HEARTBEAT_MS,
  });
  socket.subscribe(options.topic ?? '');
  const feed = new KvEventFeed(zmq, socket, options, listener);
  try {
    if (options.binds === true) await socket.bind(options.endpoint);
    else socket.connect(options.endpoint);
  } catch (error) {
    await feed.close();
    return `no KV cache events from ${options.endpoint}: ${(error as Error).message}.`;
  }
  return feed;
}

/**
 * The KV cache events of one engine, whole and in order, or the news that they no longer are. It connects again by itself
 * for as long as it is open.
 */
export class KvEventFeed {
  /** For people and metrics. */
  readonly counts = { batches: 0, events: 0, skippedEvents: 0, badFrames: 0, replays: 0, losses: 0 };
  isConnected = false;
  readonly #zmq: Zmq;
  readonly #socket: Subscriber;
  readonly #options: KvFeedOptions;
  readonly #listener: KvFeedListener;
  readonly #order: KvOrder;
  readonly #running: Promise<void>;
  #isReplaying = false;
  #settled: Promise<void> | null = null;
  #held: Numbered[] = [];
  /** The connection broke since the last batch: the publisher may be another now. */
  #isDoubtful = false;
  readonly #closing = new AbortController();

  constructor(zmq: Zmq, socket: Subscriber, options: KvFeedOptions, listener: KvFeedListener) {
    this.#zmq = zmq;
    this.#socket = socket;
    this.#options = options;
    this.#listener = listener;
    this.#order = new KvOrder(options.replayEndpoint !== null);
    socket.events.on('handshake', () => this.#connected());
    socket.events.on('disconnect', () => this.#disconnected());
    this.#running = this.#run();
  }

  /** Where it listens, when it is the engine that connects. */
  get lastEndpoint(): string | null {
    return this.#socket.lastEndpoint;
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#socket.close();
    await this.#running;
    await this.#settled;
  }

  async #run(): Promise<void> {
    let sliceStart = performance.now();
    while (!this.#isClosed) {
      let frames: Buffer[];
      try {
        frames = await this.#socket.receive();
      } catch {
        if (this.#isClosed) return;
        await delay(RECONNECT_MS);
        continue;
      }
      const one = frames.length === 3 ? readNumbered(frames) : null;
      if (one === null) this.counts.badFrames++;
      else this.#live(one);
      if (performance.now() - sliceStart < SLICE_MS) continue;
      await nextTick();
      sliceStart = performance.now();
    }
  }

  #connected(): void {
    this.isConnected = true;
    // Blocks that were stored before we came are in the replay, if anywhere.
    if (this.#isDoubtful || this.#order.next < 0) this.#replay();
  }

  #disconnected(): void {
    this.isConnected = false;
    if (this.#isClosed) return;
    if (this.#options.replayEndpoint === null) this.#lose('disconnected');
    else this.#isDoubtful = true;
  }

  #live(one: Numbered): void {
    if (!this.#isReplaying && !this.#isDoubtful && this.#handle(one)) return;
    if (this.#held.length >= MAX_HELD) this.#held = [];
    this.#held.push(one);
    this.#replay();
  }

  /** @returns false: nothing was done, a replay has to come first. */
  #handle(one: Numbered): boolean {
    let verdict = this.#order.live(one.seq, timeOf(one));
    if (verdict === 'restart') {
      this.#lose('restarted');
      verdict = this.#order.live(one.seq, timeOf(one));
    }
    if (verdict === 'ask') return false;
    if (verdict === 'gap') this.#lose('gap');
    if (verdict !== 'skip') this.#take(one);
    return true;
  }

  #take(one: Numbered): void {
    const { batch } = one;
    this.#order.took(one.seq, timeOf(one));
    if (typeof batch === 'string') {
      this.counts.badFrames++;
      this.counts.losses++;
      this.#listener.onLost('unreadable');
      return;
    }
    this.counts.batches++;
    this.counts.events += batch.events.length;
    this.counts.skippedEvents += batch.skipped;
    if (batch.events.length > 0) this.#listener.onEvents(batch.events);
  }

  #lose(why: KvLoss): void {
    const hadAny = this.#order.next >= 0;
    this.#order.forget();
    if (!hadAny) return;
    this.counts.losses++;
    this.#listener.onLost(why);
  }

  #replay(): void {
    const endpoint = this.#options.replayEndpoint;
    if (this.#isReplaying || this.#isClosed || endpoint === null) return;
    this.#isReplaying = true;
    this.#settled = this.#settle(endpoint);
  }

  /** Replays, then goes through what came live meanwhile, until nothing is missing any more. */
  async #settle(endpoint: string): Promise<void> {
    let hasToAsk = true;
    while (!this.#isClosed && (hasToAsk || this.#held.length > 0)) {
      if (hasToAsk) await this.#catchUp(endpoint);
      const isWhole = await this.#handleHeld();
      // Or the connection broke meanwhile, and is back.
      hasToAsk = !isWhole || (this.#isDoubtful && this.isConnected);
    }
    this.#isReplaying = false;
  }

  /** @returns false: another replay has to come first. */
  async #handleHeld(): Promise<boolean> {
    while (this.#held.length > 0) {
      const held = this.#held;
      this.#held = [];
      let sliceStart = performance.now();
      for (let i = 0; i < held.length; i++) {
        if (!this.#handle(held[i]!)) {
          this.#held = [...held.slice(i), ...this.#held];
          return false;
        }
        if (performance.now() - sliceStart < SLICE_MS) continue;
        await nextTick();
        if (this.#isClosed) return true;
        sliceStart = performance.now();
      }
    }
    return true;
  }

  async #catchUp(endpoint: string): Promise<void> {
    if (this.#isDoubtful) {
      this.#isDoubtful = false;
      if (this.#order.next > 0 && (await this.#isSame(endpoint))) return;
    }
    if (this.#isClosed) return;
    await this.#request(endpoint, this.#order.ask(), (one, isFirst) => {
      const { next } = this.#order;
      if (next >= 0 && one.seq < next) return true;
      if (next >= 0 && one.seq > next) {
        // Not the first: it fell out on the way, where queues are short, and is asked for again when its lack shows.
        if (!isFirst) return false;
        this.#lose('gap');
      }
      this.#take(one);
      return true;
    });
  }

  /** After a break: asks for the last batch that was had, and all after it. @returns whether all of it is known now. */
  async #isSame(endpoint: string): Promise<boolean> {
    const { next, lastTs } = this.#order;
    let isSame = false;
    await this.#request(endpoint, next - 1, (one, isFirst) => {
      if (isFirst) {
        isSame = one.seq === next - 1 && timeOf(one) === lastTs;
        return isSame;
      }
      if (one.seq !== this.#order.next) return false;
      this.#take(one);
      return true;
    });
    // Another publisher, or it no longer has that batch.
    if (!isSame && !this.#isClosed) this.#lose('restarted');
    return isSame;
  }

  async #request(endpoint: string, from: number, onBatch: (one: Numbered, isFirst: boolean) => boolean): Promise<void> {
    this.counts.replays++;
    const timeoutMs = this.#options.replayTimeoutMs ?? REPLAY_TIMEOUT_MS;
    await replay(this.#zmq, endpoint, { from, timeoutMs, signal: this.#closing.signal }, onBatch);
  }
}
