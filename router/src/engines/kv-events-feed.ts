import { setImmediate as nextTick, setTimeout as delay } from 'node:timers/promises';
import type { Subscriber } from 'zeromq';
import { KvOrder } from './kv-events-order.ts';
import { lackOf } from './kv-events-package.ts';
import { type KvBatch, type KvEvent, readKvBatch } from './kv-events.ts';

export interface KvFeedOptions {
  /** `tcp://host:port` or `ipc://path` of the engine's publisher. */
  readonly endpoint: string;
  /** Where missed batches can be requested again; null if nowhere. */
  readonly replayEndpoint: string | null;
  /** Silence after which a replay is abandoned. */
  readonly replayTimeoutMs?: number;
}

/**
 * Why the state of the engine's cache is lost:
 * - `gap`: batches were missed and could not be replayed;
 * - `restarted`: another publisher sends, so the engine is another process;
 * - `disconnected`: the connection broke and there is no replay;
 * - `unreadable`: a batch could not be read.
 */
export type KvLoss = 'gap' | 'restarted' | 'disconnected' | 'unreadable';

export interface KvFeedListener {
  /** In the order in which they happened, complete since the last loss. */
  readonly onEvents: (events: readonly KvEvent[]) => void;
  /** Earlier events are void. Later ones may continue blocks that were never reported. */
  readonly onLost: (why: KvLoss) => void;
}

const REPLAY_TIMEOUT_MS = 5_000;
/** Batches that wait for a replay. More are dropped and requested again. */
const MAX_HELD = 10_000;
const MAX_MESSAGE_BYTES = 67_108_864;
/** The feed works at most this long before it yields to the event loop. */
const SLICE_MS = 4;
const RECONNECT_MS = 100;
const RECONNECT_MAX_MS = 5_000;
/** Heartbeats detect an engine whose machine vanished. */
const HEARTBEAT_MS = 5_000;

/**
 * Opens the feed of one worker. The package is loaded only now, because most routers do not need it.
 *
 * @returns the feed, or a message for the user
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
  socket.subscribe('');
  const feed = new KvEventFeed(zmq, socket, options, listener);
  try {
    socket.connect(options.endpoint);
  } catch (error) {
    await feed.close();
    return `no KV cache events from ${options.endpoint}: ${(error as Error).message}.`;
  }
  return feed;
}

/** The KV cache events of one engine, complete and in order, or a notice that they were lost. It reconnects. */
export class KvEventFeed {
  /** For `GET /policies` and tests. */
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
  /** The connection broke since the last batch, so the publisher may be another one. */
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
    // Blocks that were stored before the connection can only be in the replay.
    if (this.#isDoubtful || this.#order.next === null) this.#replay();
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

  /** @returns false if a replay must come first */
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
    const hadAny = this.#order.next !== null;
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

  /** Replays and handles what arrived meanwhile, until nothing is missing. */
  async #settle(endpoint: string): Promise<void> {
    let hasToAsk = true;
    while (!this.#isClosed && (hasToAsk || this.#held.length > 0)) {
      if (hasToAsk) await this.#catchUp(endpoint);
      const isWhole = await this.#handleHeld();
      // Or the connection broke and was restored meanwhile.
      hasToAsk = !isWhole || (this.#isDoubtful && this.isConnected);
    }
    this.#isReplaying = false;
  }

  /** @returns false if another replay must come first */
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
      const { next } = this.#order;
      if (next !== null && (await this.#isSame(endpoint, next))) return;
    }
    if (this.#isClosed) return;
    await this.#request(endpoint, this.#order.ask(), (one, isFirst) => {
      const { next } = this.#order;
      if (next !== null && one.seq < next) return true;
      if (next !== null && one.seq > next) {
        // A batch after the first was dropped by a short queue: it is requested again when the gap shows.
        if (!isFirst) return false;
        this.#lose('gap');
      }
      this.#take(one);
      return true;
    });
  }

  /** After a broken connection: requests the last known batch and those after it. @returns whether all are known now */
  async #isSame(endpoint: string, next: number): Promise<boolean> {
    const { lastTs } = this.#order;
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
    // Another publisher, or one that no longer has that batch.
    if (!isSame && !this.#isClosed) this.#lose('restarted');
    return isSame;
  }

  async #request(endpoint: string, from: number, onBatch: (one: Numbered, isFirst: boolean) => boolean): Promise<void> {
    this.counts.replays++;
    const timeoutMs = this.#options.replayTimeoutMs ?? REPLAY_TIMEOUT_MS;
    await replay(this.#zmq, endpoint, { from, timeoutMs, signal: this.#closing.signal }, onBatch);
  }
}

type Zmq = typeof import('zeromq');

/** A batch and its number; a text if it cannot be read. */
interface Numbered {
  readonly seq: number;
  readonly batch: KvBatch | string;
}

const timeOf = ({ batch }: Numbered): number => (typeof batch === 'string' ? Number.NaN : batch.ts);

/** Reads `…, number, payload`. @returns null if there is no number, or it is -1 for the end of a replay */
function readNumbered(frames: readonly Buffer[]): Numbered | null {
  const number = frames.at(-2);
  if (number?.length !== 8) return null;
  const seq = number.readBigUInt64BE();
  if (seq > BigInt(Number.MAX_SAFE_INTEGER)) return null;
  return { seq: Number(seq), batch: readKvBatch(frames.at(-1)!) };
}

/** Batches between two yields to the event loop. */
const TURN = 32;

/**
 * Requests an engine's batches from `from` on, until `onBatch` returns false, the engine ends the replay, is silent for
 * `timeoutMs`, or `signal` aborts.
 */
async function replay(
  zmq: Zmq,
  endpoint: string,
  { from, timeoutMs, signal }: { from: number; timeoutMs: number; signal: AbortSignal },
  onBatch: (one: Numbered, isFirst: boolean) => boolean,
): Promise<void> {
  // No limit: an engine drops what exceeds one.
  const socket = new zmq.Dealer({
    linger: 0,
    ipv6: true,
    receiveHighWaterMark: 0,
    receiveTimeout: timeoutMs,
    sendTimeout: timeoutMs,
  });
  const close = (): void => socket.close();
  signal.addEventListener('abort', close);
  try {
    socket.connect(endpoint);
    const number = Buffer.alloc(8);
    number.writeBigUInt64BE(BigInt(from));
    await socket.send(['', number]);
    for (let count = 0; ; count++) {
      // `'', topic, number, payload`; older releases leave out the topic.
      const one = readNumbered(await socket.receive());
      if (one === null || !onBatch(one, count === 0)) return;
      if (count % TURN === 0) await nextTick();
    }
  } catch {
    // A timeout or an invalid endpoint: what arrived so far counts.
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}
