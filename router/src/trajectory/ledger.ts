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
}

/** Turns wait so long for others to travel with, unless something else is asked before: nobody waits for them. */
const GATHER_MS = 5;

/** The trajectory thread, seen from the event loop. */
export class Ledger extends ThreadCaller<LedgerCalls> {
  readonly #packer = new TurnPacker();
  #timer: NodeJS.Timeout | null = null;

  constructor(options: LedgerOptions, onDeath: (error: Error) => void) {
    super(new URL('./ledger-in-thread', import.meta.url), options, onDeath);
  }

  /** A turn to be kept. Whatever is asked of the thread afterwards is asked with this turn known. */
  turnEnded(turn: EndedTurn): void {
    if (this.isOver) return;
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
    await this.ask('close', null).catch(() => {});
    await super.close();
  }
}
