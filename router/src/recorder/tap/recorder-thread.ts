import { getHeapStatistics } from 'node:v8';
import type { Transferable } from 'node:worker_threads';
import { messageOf } from '../../config/user-module.ts';
import { cameWithin } from '../../kit/came-within.ts';
import { RouterError } from '../../kit/errors.ts';
import { Refused } from '../../plugin.ts';
import { type Answer, type Argument, ThreadEnded, WorkerThread } from '../../threads/worker-thread.ts';
import type { CaptureOptions } from '../thread/capture/capture-calls.ts';
import { clientCalls } from '../shared/client-calls.ts';
import type { EndedCapture, RecorderCalls, Recorded } from '../thread/recorder-calls.ts';
import type { SessionEnd, SessionEnded } from '../thread/store/store-calls.ts';
import type { ChatName } from '../shared/turn.ts';
import { UnstoredTurns } from './unstored-turns.ts';

/** What the recorder thread is started with: plain data, as it crosses over to it. */
export interface RecorderOptions extends CaptureOptions {
  /** Where turns are kept; null: in memory. */
  readonly dataDir: string | null;
  /** `memory`, `sqlite`, `redis://…`; left out: in the data folder where there is one, else in memory. */
  readonly store?: string | null;
  /** How much memory turns may take where they are kept in memory. */
  readonly storeMemoryBytes?: number;
  /** SQLite: each write is on the disk when it is done, not only handed to the operating system. */
  readonly syncsStore?: boolean;
  /** How long sessions are kept after their last turn; 0: for ever. */
  readonly storeMaxAgeSecs?: number;
}

/** Calls that a thread answers before it is prepared: those that prepare it, its end, and responses of requests that it does not know. */
const ANSWERED_EARLY: ReadonlySet<string> = new Set<keyof RecorderCalls>([
  'storeState',
  'loadTokenizer',
  'chatBegin',
  'feedBegin',
  'captureEnded',
  'close',
]);

/** How long the store of a thread that is given up may take. */
const GIVE_UP_MS = 15_000;

/** What is transferred with copies, each of which has its memory to itself. */
const memoryOf = (pieces: readonly Uint8Array[]): ArrayBuffer[] => pieces.map(({ buffer }) => buffer as ArrayBuffer);

/** The recorder thread, seen from the event loop. */
export class RecorderThread extends WorkerThread<RecorderCalls> {
  /** Turns that the store did not take in the end. */
  lost = 0;
  /** Those that were lost when the thread ended, or ended while there was none. */
  missed = 0;
  readonly #unstored = new UnstoredTurns();
  #lastId = 0;
  /** It was started again, and lacks what its plugins need: other calls are as those of a thread that has ended. */
  isPreparing = false;
  /** What is asked of engines for the record: those that read it wait for this. null: nothing is. */
  completes: () => Promise<unknown> | null = () => null;

  constructor(options: RecorderOptions, onDeath: (error: Error) => void) {
    // A part of what the caches hold are V8's objects: their limits come on top of the heap that Node gives a thread.
    const heapBytes = getHeapStatistics().heap_size_limit + (options.maxBytes ?? 0);
    super('recorder/thread/recorder-in-thread', {
      workerData: options,
      here: clientCalls,
      onDeath,
      heapMb: Math.ceil(heapBytes / 1_048_576),
    });
  }

  override ask<N extends keyof RecorderCalls>(
    name: N,
    argument: Argument<RecorderCalls[N]>,
    transfer: readonly Transferable[] = [],
  ): Promise<Answer<RecorderCalls[N]>> {
    if (this.isPreparing && !ANSWERED_EARLY.has(name))
      return Promise.reject(new ThreadEnded('the thread is being started again'));
    return super.ask(name, argument, transfer);
  }

  /** As `ask`, for those that read the record: what engines are being asked for it is in the answer, if they say it soon. */
  async read<N extends keyof RecorderCalls>(
    name: N,
    argument: Argument<RecorderCalls[N]>,
  ): Promise<Answer<RecorderCalls[N]>> {
    await this.completes();
    return this.ask(name, argument);
  }

  /** For readers of the record that need all of these turns. Rejects with a refusal while the store fails and lacks some of them. */
  async requireStored(turns: Argument<RecorderCalls['notStored']>): Promise<void> {
    const problem = await this.read('notStored', turns);
    if (problem !== null)
      throw new Refused(new RouterError('capture_failed', `Not all turns can be read: ${problem}.`));
  }

  /** @returns the number of a new capture, export or delivery: no thread that is started later has it again */
  newId(): number {
    return ++this.#lastId;
  }

  /**
   * Hands a response, or a part of it, to the thread: its memory is transferred. What is asked of the thread later is asked with its turns known.
   * @param isReported the caller wants to know what became of it, also if `isAwaited` is false
   * @returns null: nothing waits for it
   */
  captureEnded(ended: EndedCapture, isReported: boolean): Promise<Recorded> | null {
    const { request, answer, facts, isAwaited, sessionEnd } = ended;
    const turn = this.#unstored.add(facts);
    const transfer = memoryOf(request === null ? answer : [request, ...answer]);
    if (!isAwaited && !isReported) {
      if (this.isOver) this.missed++;
      else this.tell('captureEnded', ended, transfer);
      return null;
    }
    const came = (recorded: Recorded): Recorded => {
      if (turn !== null && recorded.problem === null && recorded.isStored) this.#unstored.stored(facts, turn);
      if (sessionEnd !== null && recorded.isEnded) this.#unstored.over(sessionEnd);
      return recorded;
    };
    return this.ask('captureEnded', ended, transfer).then(came, () => {
      // The end of the thread is logged elsewhere.
      this.missed++;
      return { problem: null, isStored: false, isEnded: false };
    });
  }

  /** A response passed whose turn can't be recorded: the thread did not take its request, or the response is too large. */
  turnMissed(name: ChatName): void {
    this.#unstored.miss(name);
    this.tell('turnsLost', [name]);
  }

  /** Asks a store that outlives the thread for what the thread got without an answer. */
  async proveStored(): Promise<void> {
    if (!this.#unstored.hasUnproven) return;
    const beganMs = performance.now();
    if ((await this.ask('notStored', {})) === null) this.#unstored.storedBefore(beganMs);
  }

  /** Records the end of a session. Rejects if it can't be stored now. */
  async endSession(end: SessionEnd): Promise<SessionEnded> {
    const ended = await this.ask('sessionEnded', end);
    this.#unstored.over(end);
    return ended;
  }

  /** First the thread learns which sessions have lost turns: it records responses before it is prepared. */
  override restart(): void {
    super.restart();
    this.tell('turnsLost', this.#unstored.lose());
  }

  /** Ends a thread that could not be prepared. Responses that it got meanwhile are stored, as far as its store takes them. */
  async giveUp(error: Error): Promise<void> {
    const closing = this.ask('close', null).catch(() => 0);
    if (await cameWithin(GIVE_UP_MS, closing)) this.missed += await closing;
    await this.abort(error);
  }

  override async close(): Promise<void> {
    // Answers that are being read make turns.
    await this.idle();
    this.lost = await this.ask('close', null).catch(() => 0);
    await super.close();
  }
}

/** For calls that need the store: it is away, or another router has taken the feed over, so the client may ask again. */
export function storeFailed(error: unknown, what: string): never {
  if (error instanceof Refused || error instanceof ThreadEnded) throw error;
  throw new Refused(new RouterError('capture_failed', `${what}: ${messageOf(error)}.`));
}
