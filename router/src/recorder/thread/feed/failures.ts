import { isOfStore } from '../store/store.ts';
import type { Group } from './group.ts';

/** So often a group is tried. */
const MAX_TRIES = 3;
/** After a failure a group is not tried for so long, and others are: a disk or a mount may be back by then. */
const RETRY_MS = 60_000;

/** For the log. */
export interface GroupFailure {
  readonly group: string;
  readonly tenant: string;
  readonly error: string;
  /** It is not tried again. */
  readonly isDropped: boolean;
}

/** Groups whose turns can't be read, or whose rows can't be sent. Each is tried some times, delays no other one, and is dropped then. */
export class GroupFailures {
  readonly #failed = new WeakMap<Group, { readonly times: number; readonly untilMs: number }>();
  #added: GroupFailure[] = [];

  /** @returns whether the group is to be dropped. A store that is away says nothing about the group. */
  add(group: Group, error: unknown, nowMs: number): boolean {
    if (isOfStore(error)) return false;
    const times = (this.#failed.get(group)?.times ?? 0) + 1;
    this.#failed.set(group, { times, untilMs: nowMs + RETRY_MS });
    const isDropped = times >= MAX_TRIES;
    this.#added.push({ group: group.name, tenant: group.tenant, error: (error as Error).message, isDropped });
    return isDropped;
  }

  /** Whether the group is to be tried later. */
  isWaiting(group: Group, nowMs: number): boolean {
    return (this.#failed.get(group)?.untilMs ?? 0) > nowMs;
  }

  /** What was added since the last call. */
  take(): readonly GroupFailure[] {
    const added = this.#added;
    this.#added = [];
    return added;
  }
}
