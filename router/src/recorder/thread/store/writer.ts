import type { ChatName, SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { type LearnedVersion, areAllNamed, completed } from '../../../weights/version-spans.ts';
import { TurnIds } from '../capture/turn-id.ts';
import { PendingTurns } from './pending-turns.ts';
import { type TrajectoryStore, type TurnFilter, isOfStore, wants } from './store.ts';

/** Turns that come within this time are written together. */
const GATHER_MS = 50;
const BATCH_TURNS = 64;
/** So much is written without delay. */
const BATCH_BYTES = 8_388_608;
/** Delay before a failed store is tried again. */
const RETRY_MS = 1_000;
/**
 * How much is kept for a failing store; further turns are dropped. A store that works loses none, however slow it is: SQLite and the memory
 * store block the thread, so no response is read meanwhile, and Redis counts as failing when it has not answered for 10 s. New work is
 * refused from 70 % of the heap on (`HeapLimits`), and with `--capture-required` as soon as the store fails.
 */
export const PENDING_BYTES = 67_108_864;
/** How many amendments wait for a failing store; further ones are dropped, and their turns stay unchanged. */
const MAX_AMENDMENTS = 100_000;
/** How many turns are tried one by one before a store that takes none of them counts as still failing. */
const TRIALS = 3;

export interface WriterState {
  readonly stored: number;
  /** Turns that will never be in the store, or not in their last version. */
  readonly dropped: number;
  readonly pending: number;
  /** Sampled tokens without a known logprob. */
  readonly unknownLogprobs: number;
  /** Turns that are stored as text, because their tokens are not known. */
  readonly textTurns: number;
  /** Turns with tokens whose version will not be known. */
  readonly unknownVersions: number;
  /** The last try failed. */
  readonly isFailing: boolean;
  /** Why; null: it has not. */
  readonly lastError: string | null;
}

/** A turn whose engine is asked for versions. */
type Unnamed = TurnAmendment & { readonly seams: Turn['seams'] };

/** Called when a turn, and all earlier ones, are in the store. */
interface Awaiting {
  readonly id: string;
  readonly told: (isStored: boolean) => void;
}

/**
 * Writes turns in batches. A store that fails (a full disk, a server that is away) is asked again every second and gets what
 * it missed, as far as that fits; `put` never waits or fails.
 */
export class TurnWriter {
  readonly store: TrajectoryStore;
  /** Of the turns to put. */
  readonly ids = new TurnIds();
  /** Called for each turn that will never be in the store, in any version. */
  onLost: (turn: Turn) => void = () => {};
  /** Called for each turn that is put, and again with its versions when its engine has named them. */
  onPut: (turn: Turn | TurnAmendment) => void = () => {};
  /** The group of a session's turns whose requests name none; '': it is in none. */
  groupOf: (name: ChatName) => string = () => '';
  readonly #limitBytes: number;
  readonly #retryMs: number;
  readonly #pending = new PendingTurns();
  /** Ids of pending turns of which the store has an earlier version. */
  readonly #again = new Set<string>();
  #amendments: TurnAmendment[] = [];
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;
  #awaiting: Awaiting[] = [];
  #isHurried = false;
  #stored = 0;
  #dropped = 0;
  #unknownLogprobs = 0;
  #textTurns = 0;
  #unknownVersions = 0;
  /** Turns whose engines are asked for versions, by ticket and id. */
  readonly #unnamed = new Map<number, Map<string, Unnamed>>();
  #lastError: string | null = null;
  /** The last failed write says nothing about its turns. */
  #isOfStore = false;

  constructor(store: TrajectoryStore, limitBytes = PENDING_BYTES, retryMs = RETRY_MS) {
    this.store = store;
    this.#limitBytes = limitBytes;
    this.#retryMs = retryMs;
  }

  get state(): WriterState {
    return {
      stored: this.#stored,
      dropped: this.#dropped,
      pending: this.#pending.all.length,
      unknownLogprobs: this.#unknownLogprobs,
      textTurns: this.#textTurns,
      unknownVersions: this.#unknownVersions,
      isFailing: this.#lastError !== null,
      lastError: this.#lastError,
    };
  }

  /** @param before the same turn, as it was put earlier */
  put(given: Turn, before?: Turn): void {
    const group = given.group === '' ? this.groupOf(given) : given.group;
    const turn = group === given.group ? given : { ...given, group };
    this.onPut(turn);
    this.#unknownLogprobs += (turn.unknownLogprobs ?? 0) - (before?.unknownLogprobs ?? 0);
    if (turn.isExact === false && before === undefined) this.#textTurns++;
    const pending = before === undefined ? null : this.#pending.get(turn.id);
    if (pending !== null && this.#writing === null) {
      this.#pending.replace(pending, turn);
      return;
    }
    // What is being written can't be changed any more: the later version is written after it.
    if (pending !== null) this.#pending.remove(new Set([pending]));
    else if (before !== undefined) this.#again.add(turn.id);
    this.#pending.add(turn);
    const isFailing = this.#lastError !== null;
    if (isFailing && pending === null && this.#pending.bytes > this.#limitBytes) {
      this.#lose(this.#pending.remove(new Set([turn])));
      return;
    }
    if (this.#isBatch) void this.#write();
    else this.#writeSoon();
  }

  /** The engine of a turn is asked for versions that it did not name. @param ticket identifies the answer; null: there will be none */
  expectVersions({ id, versions, seams }: Turn, ticket: number | null): void {
    if (ticket === null) {
      if (!areAllNamed(versions)) this.#unknownVersions++;
      return;
    }
    let turns = this.#unnamed.get(ticket);
    if (turns === undefined) this.#unnamed.set(ticket, (turns = new Map()));
    turns.set(id, { id, versions, seams });
  }

  /** Whether the last version of this turn is not in the store yet: the store lacks it, or an engine is being asked for versions. */
  isUnfinished(id: string): boolean {
    for (const turns of this.#unnamed.values()) if (turns.has(id)) return true;
    return this.#pending.get(id) !== null || this.#amendments.some((amendment) => amendment.id === id);
  }

  /** The engine was asked. */
  learned(version: LearnedVersion): void {
    const turns = this.#unnamed.get(version.ticket)?.values() ?? [];
    this.#unnamed.delete(version.ticket);
    for (const { id, versions, seams } of turns) {
      if (areAllNamed(versions)) continue;
      const learned = completed(versions, version, seams);
      if (!areAllNamed(learned)) this.#unknownVersions++;
      this.onPut({ id, versions: learned });
      this.amend({ id, versions: learned });
    }
  }

  /** Adds facts to a turn that was put, whether it is in the store or not. */
  amend(amendment: TurnAmendment): void {
    // What is being written can't be changed any more.
    const pending = this.#writing === null ? this.#pending.get(amendment.id) : null;
    if (pending !== null) {
      this.#pending.replace(pending, { ...pending, ...amendment });
      return;
    }
    if (this.#amendments.length >= MAX_AMENDMENTS) return;
    this.#amendments.push(amendment);
    this.#writeSoon();
  }

  /** Turns of a session that are not in the store yet; without a tenant those of all tenants. */
  waiting(session: string, tenant?: string): readonly Turn[] {
    return this.#pending.all.filter((turn) => wants({ session, tenant }, turn));
  }

  /** Why the store can't show all of these turns: it fails, and lacks some. null: it has them. Fields that are left out do not filter. */
  notStored(query: Pick<TurnFilter, 'session' | 'tenant' | 'group'>): string | null {
    if (this.#lastError === null) return null;
    const lacks = this.#pending.all.some((turn) => wants(query, turn));
    const { session } = query;
    const of = session === undefined ? '' : ` of session '${session}'`;
    return lacks ? `turns${of} are not stored yet: ${this.#lastError}` : null;
  }

  /** Throws if what is read of the session would not be all. */
  requireAll({ session, tenant }: SessionName): void {
    const problem = this.notStored({ session, tenant });
    if (problem !== null) throw new Error(problem);
  }

  /**
   * Resolves when all earlier turns are in the store; with false if the store fails. Writes without delay: turns of the same turn of the
   * event loop are written together.
   */
  stored(): Promise<boolean> {
    if (this.#lastError !== null) return Promise.resolve(false);
    const turn = this.#pending.all.at(-1);
    if (turn === undefined) return Promise.resolve(true);
    if (!this.#isHurried) {
      this.#isHurried = true;
      setImmediate(() => {
        this.#isHurried = false;
        void this.#write();
      });
    }
    return new Promise((resolve) => {
      this.#awaiting.push({ id: turn.id, told: resolve });
    });
  }

  /** Resolves when all earlier turns are in the store, or it has failed. Turns that come meanwhile delay it by one write at most. */
  async flush(): Promise<void> {
    if (this.#lastError !== null) return;
    // It may have begun before the last of them.
    await this.#writing;
    if (this.#isWaiting && this.#lastError === null) await this.#write();
  }

  /** Tries a last time; the rest is lost. @returns how many turns are lost */
  async close(): Promise<number> {
    await this.#writing;
    do await this.#write();
    while (this.#isWaiting && this.#lastError === null);
    if (this.#timer !== null) clearTimeout(this.#timer);
    const lost = this.#pending.remove(new Set(this.#pending.all));
    this.#tell(() => true, false);
    this.#lose(lost);
    await this.store.close();
    return lost.length;
  }

  get #isWaiting(): boolean {
    return this.#pending.all.length + this.#amendments.length > 0;
  }

  /** So much is written without delay, unless the store fails. */
  get #isBatch(): boolean {
    const { all, bytes } = this.#pending;
    return this.#lastError === null && (all.length >= BATCH_TURNS || bytes >= BATCH_BYTES);
  }

  #write(): Promise<void> {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = null;
      if (!this.#isWaiting) return;
      if (this.#awaiting.length > 0 || this.#isBatch) void this.#write();
      else this.#writeSoon();
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    // Not what comes meanwhile: who waits for the write waits for what there is now.
    for (let left = this.#pending.all.length; left > 0 && this.#pending.all.length > 0;) {
      const written = this.#lastError === null ? await this.#writeBatch() : await this.#writeSome();
      if (written === 0) return;
      left -= written;
    }
    // After their turns.
    const pending = new Set(this.#pending.all.map(({ id }) => id));
    const amendments = new Set(this.#amendments.filter(({ id }) => !pending.has(id)));
    if (amendments.size === 0) return;
    if (await this.#try(() => this.store.amend([...amendments])))
      this.#amendments = this.#amendments.filter((amendment) => !amendments.has(amendment));
  }

  #writeSoon(): void {
    const waitMs = this.#lastError === null ? GATHER_MS : this.#retryMs;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.#write();
    }, waitMs);
  }

  /** @returns how many turns were written; 0: the store fails */
  async #writeBatch(): Promise<number> {
    const batch = this.#pending.all.slice(0, BATCH_TURNS);
    if (await this.#try(() => this.store.put(batch))) {
      this.#wrote(batch);
      return batch.length;
    }
    return 0;
  }

  #tell(isMeant: (awaiting: Awaiting) => boolean, isStored: boolean): void {
    if (this.#awaiting.length === 0) return;
    const meant = this.#awaiting.filter(isMeant);
    this.#awaiting = this.#awaiting.filter((awaiting) => !meant.includes(awaiting));
    for (const { told } of meant) told(isStored);
  }

  /**
   * Tries turns one by one. A store that takes one may have come back only now, so those that it refused before are tried again; what it
   * refuses then is dropped. @returns how many turns do not wait any more
   */
  async #writeSome(): Promise<number> {
    const refused: Turn[] = [];
    for (const turn of this.#pending.all.slice(0, TRIALS)) {
      if (await this.#try(() => this.store.put([turn]))) {
        this.#wrote([turn]);
        return 1 + (await this.#writeAgain(refused));
      }
      if (this.#isOfStore) return 0;
      refused.push(turn);
    }
    return 0;
  }

  /** @returns how many of them do not wait any more */
  async #writeAgain(refused: readonly Turn[]): Promise<number> {
    for (const [i, turn] of refused.entries()) {
      if (await this.#try(() => this.store.put([turn]))) this.#wrote([turn]);
      else if (this.#isOfStore) return i;
      else this.#lose(this.#pending.remove(new Set([turn])));
    }
    // It takes others.
    this.#lastError = null;
    return refused.length;
  }

  async #try(write: () => void | Promise<void>): Promise<boolean> {
    try {
      await write();
      this.#lastError = null;
      return true;
    } catch (error) {
      this.#isOfStore = isOfStore(error);
      this.#lastError = (error as Error).message || 'the store failed';
      this.#tell(() => true, false);
      return false;
    }
  }

  #lose(turns: Iterable<Turn>): void {
    for (const turn of turns) {
      this.#dropped++;
      // The earlier version has the same files.
      if (!this.#again.delete(turn.id)) this.onLost(turn);
    }
  }

  /** They are in the store; some of them may be pending again, in a later version. */
  #wrote(turns: readonly Turn[]): void {
    this.#pending.remove(new Set(turns));
    for (const { id } of turns) if (!this.#again.delete(id)) this.#stored++;
    const ids = new Set(turns.map(({ id }) => id));
    for (const { id } of this.#pending.all) if (ids.delete(id)) this.#again.add(id);
    this.#tell(({ id }) => ids.has(id), true);
  }
}
