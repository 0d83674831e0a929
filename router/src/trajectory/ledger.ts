import { getHeapStatistics } from 'node:v8';
import type { CaptureOptions } from './capture/capture-calls.ts';
import { type EndedTurn, TurnPacker } from './capture/turn-parcel.ts';
import type { LedgerCalls } from './ledger-calls.ts';
import { ThreadCaller } from './thread.ts';

/** What the trajectory thread is started with: plain data, as it crosses over to it. */
export interface LedgerOptions extends CaptureOptions {
  /** Where turns are kept; null: in memory. */
  readonly dataDir: string | null;
  /** `memory`, `sqlite`, `redis://…`; left out: in the data folder where there is one, else in memory. */
  readonly store?: string | null;
  /** How much memory turns may take where they are kept in memory. */
  readonly storeMemoryBytes?: number;
  /** How long sessions are kept after their last turn; 0: for ever. */
  readonly storeMaxAgeSecs?: number;
}

/** Turns wait so long for others to travel with, unless something else is asked before: nobody waits for them. */
const GATHER_MS = 5;

/** What is given away with an answer in several pieces, each of which has its memory to itself. */
export const memoryOf = (pieces: readonly Uint8Array[]): ArrayBuffer[] =>
  pieces.map(({ buffer }) => buffer as ArrayBuffer);

/** The trajectory thread, seen from the event loop. */
export class Ledger extends ThreadCaller<LedgerCalls> {
  /** Turns that the store did not take in the end. */
  lost = 0;
  /** Those that ended after the thread did. */
  missed = 0;
  readonly #packer = new TurnPacker();
  #timer: NodeJS.Timeout | null = null;

  constructor(options: LedgerOptions, onDeath: (error: Error) => void) {
    // A part of what the caches hold are V8's objects: their limits come on top of the heap that Node gives a thread.
    const heapBytes = getHeapStatistics().heap_size_limit + (options.maxBytes ?? 0);
    super('trajectory/ledger-in-thread', options, onDeath, Math.ceil(heapBytes / 1_048_576));
  }

  /**
   * A turn to be kept. Whatever is asked of the thread afterwards is asked with this turn known.
   * @param pieces its answer, where that is in several pieces: they are given away
   */
  turnEnded(turn: EndedTurn, pieces: readonly Uint8Array[]): void {
    if (this.isOver) {
      this.missed++;
      return;
    }
    if (pieces.length > 1) {
      this.#ship();
      this.#packer.add(turn);
      this.tell('turnsEnded', { ...this.#packer.take()!, answer: pieces }, memoryOf(pieces));
      return;
    }
    if (!this.#packer.add(turn)) {
      this.#ship();
      this.#packer.add(turn);
    }
    // Its experts were told of in this very round: it may not overtake them.
    if (turn.expertsKey !== null) this.#ship();
    else this.#timer ??= setTimeout(() => this.flush(), GATHER_MS).unref();
  }

  /** Turns that ended go first: what is asked may be about them. */
  protected override first() {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    const parcel = this.#packer.take();
    return parcel === null ? null : ({ name: 'turnsEnded', argument: parcel } as const);
  }

  #ship(): void {
    const parcel = this.#packer.take();
    if (parcel !== null) this.tell('turnsEnded', parcel);
  }

  override async close(): Promise<void> {
    // Answers that are being read make turns.
    await this.idle();
    this.lost = await this.ask('close', null).catch(() => 0);
    await super.close();
  }
}
