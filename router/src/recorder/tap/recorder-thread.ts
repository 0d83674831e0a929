import { getHeapStatistics } from 'node:v8';
import { type Answer, type Argument, WorkerThread } from '../../threads/worker-thread.ts';
import type { CaptureOptions } from '../thread/capture/capture-calls.ts';
import type { EndedTurn } from '../thread/capture/turn-ends.ts';
import { clientCalls } from '../shared/client-calls.ts';
import type { RecorderCalls } from '../thread/recorder-calls.ts';

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

/** What is transferred with copies, each of which has its memory to itself. */
export const memoryOf = (pieces: readonly Uint8Array[]): ArrayBuffer[] =>
  pieces.map(({ buffer }) => buffer as ArrayBuffer);

/** The recorder thread, seen from the event loop. */
export class RecorderThread extends WorkerThread<RecorderCalls> {
  /** Turns that the store did not take in the end. */
  lost = 0;
  /** Those that were lost when the thread ended, or ended while there was none. */
  missed = 0;
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

  /** As `ask`, for those that read the record: what engines are being asked for it is in the answer, if they say it soon. */
  async read<N extends keyof RecorderCalls>(
    name: N,
    argument: Argument<RecorderCalls[N]>,
  ): Promise<Answer<RecorderCalls[N]>> {
    await this.completes();
    return this.ask(name, argument);
  }

  /**
   * Hands a turn to the thread: its request and answer are transferred. What is asked of the thread later is asked with this turn known.
   * @param isAwaited resolve only when the turn is in the store; otherwise nothing waits for it
   * @returns whether the turn is in the store; null where it is not awaited
   */
  turnEnded(turn: EndedTurn, isAwaited: boolean): Promise<boolean> | null {
    const { request, answer } = turn;
    if (this.isOver) {
      this.missed++;
      return isAwaited ? Promise.resolve(false) : null;
    }
    const transfer = memoryOf(request === null ? answer : [request, ...answer]);
    if (isAwaited) return this.ask('turnStored', turn, transfer).catch(() => false);
    this.tell('turnEnded', turn, transfer);
    return null;
  }

  override async close(): Promise<void> {
    // Answers that are being read make turns.
    await this.idle();
    this.lost = await this.ask('close', null).catch(() => 0);
    await super.close();
  }
}
