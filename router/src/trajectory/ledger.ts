import { getHeapStatistics } from 'node:v8';
import type { Call } from '../threads/serve-calls.ts';
import { type Answer, type Argument, WorkerThread } from '../threads/worker-thread.ts';
import type { CaptureOptions } from './capture/capture-calls.ts';
import { type EndedTurn, type Parcel, TurnPacker } from './capture/turn-parcel.ts';
import type { LedgerCalls } from './ledger-calls.ts';

/** What the trajectory thread is started with: plain data, as it crosses over to it. */
export interface LedgerOptions extends CaptureOptions {
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

/** Turns wait so long for others to travel with, unless something else is asked before: nobody waits for them. */
const GATHER_MS = 5;

/** What is given away with an answer in several pieces, each of which has its memory to itself. */
export const memoryOf = (pieces: readonly Uint8Array[]): ArrayBuffer[] =>
  pieces.map(({ buffer }) => buffer as ArrayBuffer);

/** The trajectory thread, seen from the event loop. */
export class Ledger extends WorkerThread<LedgerCalls> {
  /** Turns that the store did not take in the end. */
  lost = 0;
  /** Those that ended after the thread did. */
  missed = 0;
  /** What is asked of engines for the record: those that read it wait for this. null: nothing is. */
  completes: () => Promise<unknown> | null = () => null;
  readonly #packer = new TurnPacker();
  /** Told whether the turns that wait in the packer are in the store. */
  #awaiting: ((isStored: boolean) => void)[] = [];
  /** A parcel is among the calls that are not sent yet. */
  #hasShipped = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: LedgerOptions, onDeath: (error: Error) => void) {
    // A part of what the caches hold are V8's objects: their limits come on top of the heap that Node gives a thread.
    const heapBytes = getHeapStatistics().heap_size_limit + (options.maxBytes ?? 0);
    super('trajectory/ledger-in-thread', { workerData: options, onDeath, heapMb: Math.ceil(heapBytes / 1_048_576) });
  }

  /** As `ask`, for those that read the record: what engines are being asked for it is in the answer, if they say it soon. */
  async read<N extends keyof LedgerCalls>(
    name: N,
    argument: Argument<LedgerCalls[N]>,
  ): Promise<Answer<LedgerCalls[N]>> {
    await this.completes();
    return this.ask(name, argument);
  }

  /**
   * A turn to be kept. Whatever is asked of the thread afterwards is asked with this turn known.
   * @param pieces its answer, where that is in several pieces: they are given away
   * @param onStored told whether it is in the store, as soon as that is known; null: nobody waits for it
   */
  turnEnded(
    turn: EndedTurn,
    pieces: readonly Uint8Array[],
    onStored: ((isStored: boolean) => void) | null = null,
  ): void {
    if (this.isOver) {
      this.missed++;
      onStored?.(false);
      return;
    }
    const isLarge = pieces.length > 1;
    if (isLarge) this.#ship();
    if (!this.#packer.add(turn)) {
      this.#ship();
      this.#packer.add(turn);
    }
    if (onStored !== null) this.#awaiting.push(onStored);
    if (isLarge) this.#ship(pieces);
    // What was told of in this very round it may not overtake: its experts, or the beginning of its answer.
    else if (turn.expertsKey !== null || this.#hasShipped) this.#ship();
    else if (onStored !== null) this.flushSoon();
    else this.#timer ??= setTimeout(() => this.flush(), GATHER_MS).unref();
  }

  /** Turns that ended go first: what is asked may be about them. */
  protected override first(): Call | null {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#hasShipped = false;
    const parcel = this.#takeParcel();
    if (parcel === null) return null;
    const answer = this.#awaited();
    const id = answer === null ? 0 : this.await(answer, () => answer(false));
    return { id, name: 'turnsEnded', args: [parcel] };
  }

  #ship(answer?: readonly Uint8Array[]): void {
    const parcel = this.#takeParcel();
    if (parcel === null) return;
    this.#hasShipped = true;
    const argument = answer === undefined ? parcel : { ...parcel, answer };
    const told = this.#awaited();
    const transfer = answer === undefined ? [] : memoryOf(answer);
    if (told === null) this.tell('turnsEnded', argument, transfer);
    else
      this.ask('turnsEnded', argument, transfer).then(
        (isStored) => told(isStored === true),
        () => told(false),
      );
  }

  #takeParcel(): Parcel | null {
    const parcel = this.#packer.take();
    return parcel === null ? null : { ...parcel, isAwaited: this.#awaiting.length > 0 };
  }

  /** Tells all who wait for the turns of a parcel; null: nobody does. */
  #awaited(): ((isStored: boolean) => void) | null {
    if (this.#awaiting.length === 0) return null;
    const awaiting = this.#awaiting;
    this.#awaiting = [];
    return (isStored) => {
      for (const told of awaiting) told(isStored);
    };
  }

  override async close(): Promise<void> {
    // Answers that are being read make turns.
    await this.idle();
    this.lost = await this.ask('close', null).catch(() => 0);
    await super.close();
  }
}
