import type { WorkerState } from './worker-state.ts';

/** A session of a group, or a request of it without a session. */
export interface GroupMember {
  /** Where its first turn was placed; null: nowhere yet. */
  firstAt: WorkerState | null;
}

/** What decides whether a session of the group counts in `expectedTurns`. */
interface Trajectory {
  readonly turns: number;
  readonly isProven: boolean;
  readonly isOpen: boolean;
}

/** The sessions of one prompt. */
export class Group {
  /** Open members by the worker that got their first turn; 0: some were there. Some may have left the fleet. */
  readonly placed = new Map<WorkerState, number>();
  /** Responses so far, and their tokens. */
  answers = 0;
  answerTokens = 0;
  /** Sessions that ended, and their turns in total. */
  #ended = 0;
  #endedTurns = 0;
  /** Open sessions. */
  open = 0;
  /** How many of those that are proven have had so many turns, by that number. (A group may have 100,000 sessions.) */
  readonly #byTurns: number[] = [];
  /** What `expectedTurns` has returned, and the mean it was asked for; null: that has changed. */
  #expected: { readonly usual: number; readonly turns: number } | null = null;

  /** The first turn of a member is placed; `null`: the member has ended. */
  place(member: GroupMember, at: WorkerState | null): void {
    const { firstAt } = member;
    const there = firstAt === null ? undefined : this.placed.get(firstAt);
    if (there !== undefined) this.placed.set(firstAt!, there - 1);
    member.firstAt = at;
    if (at === null) return;
    const members = this.placed.get(at);
    // A group that goes on for weeks would keep all that ever had a turn of it. (To go through all groups when a worker leaves takes too long.)
    if (members === undefined) for (const state of this.placed.keys()) if (state.hasLeft) this.placed.delete(state);
    this.placed.set(at, (members ?? 0) + 1);
  }

  /** Called with -1 before `turns`, `isProven` or `isOpen` of a session changes, and with 1 after that. */
  count({ turns, isProven, isOpen }: Trajectory, by: 1 | -1): void {
    // Without a turn it says nothing.
    if (turns === 0 || !isProven || !isOpen) return;
    this.#byTurns[turns] = (this.#byTurns[turns] ?? 0) + by;
    this.#expected = null;
  }

  /** A session of the group has ended. */
  sawEnd(turns: number): void {
    this.#ended++;
    this.#endedTurns += turns;
    this.#expected = null;
  }

  /**
   * Turns that a session of this group is expected to have, where `usual` is the mean of all sessions. A decision asks for each resident of a
   * worker, so the cost must not grow with the sessions of the group.
   */
  expectedTurns(usual: number): number {
    if (this.#expected?.usual === usual) return this.#expected.turns;
    let sum = this.#endedTurns + usual / 2;
    let count = this.#ended + 0.5;
    for (let turns = 1; turns < this.#byTurns.length; turns++) {
      const sessions = this.#byTurns[turns] ?? 0;
      // A running session will have more turns than it has had.
      sum += sessions * Math.max(1.3 * turns, 0.7 * usual);
      count += sessions;
    }
    this.#expected = { usual, turns: sum / count };
    return this.#expected.turns;
  }
}
