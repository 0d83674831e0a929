import type { Turn, TurnQuery } from '../turn.ts';
import { type SessionHead, type StoreCounts, type TrajectoryStore, outlineOf, turnBytes, wants } from './store.ts';

interface Session {
  readonly head: SessionHead;
  readonly turns: Turn[];
  bytes: number;
}

const keyOf = (tenant: string, session: string): string => `${tenant.length}:${tenant}${session}`;
const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/**
 * Turns in memory, up to a number of bytes. What has to go goes by session, the one that was written to longest ago
 * first: half a trajectory is of no use to anybody.
 */
export class MemoryStore implements TrajectoryStore {
  readonly place = 'memory';
  readonly #limitBytes: number;
  /** The one written to last stands last. */
  readonly #sessions = new Map<string, Session>();
  readonly #turns = new Map<string, Turn>();
  /** All turns in the order of their ids; null: to be sorted anew when somebody asks. */
  #sorted: readonly Turn[] | null = null;
  #bytes = 0;
  #evicted = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  put(turns: readonly Turn[]): void {
    for (const turn of turns) this.#put(turn);
    this.#sorted = null;
    for (const [key, session] of this.#sessions) {
      if (this.#bytes <= this.#limitBytes) break;
      this.#evicted += session.turns.length;
      this.#drop(key, session);
    }
  }

  get(id: string): Turn | null {
    return this.#turns.get(id) ?? null;
  }

  find(query: TurnQuery): readonly Turn[] {
    const { after, limit } = query;
    const found: Turn[] = [];
    for (const turn of this.#inOrder()) {
      if (found.length >= limit) break;
      if ((after === undefined || turn.id > after) && wants(query, turn)) found.push(turn);
    }
    return found;
  }

  sessions(query: TurnQuery): readonly SessionHead[] {
    const { after, limit } = query;
    const heads = [...this.#sessions.values()]
      .filter(({ turns }) => turns.some((turn) => wants(query, turn)))
      .map(({ head }) => head)
      .filter(({ firstTurn }) => after === undefined || firstTurn > after);
    return heads.toSorted((a, b) => byText(a.firstTurn, b.firstTurn)).slice(0, limit);
  }

  outlines(session: string, tenant?: string) {
    return this.#inOrder()
      .filter((turn) => wants(tenant === undefined ? { session } : { session, tenant }, turn))
      .map(outlineOf);
  }

  removeSession(session: string, tenant?: string): number {
    let removed = 0;
    for (const [key, each] of this.#sessions) {
      const { head, turns } = each;
      if (head.session !== session || (tenant !== undefined && head.tenant !== tenant)) continue;
      removed += turns.length;
      this.#drop(key, each);
    }
    return removed;
  }

  counts(): StoreCounts {
    return { turns: this.#turns.size, bytes: this.#bytes, evicted: this.#evicted };
  }

  close(): void {}

  #put(turn: Turn): void {
    const { id, tenant, session: name } = turn;
    const key = keyOf(tenant, name);
    const session = this.#sessions.get(key) ?? {
      head: { session: name, tenant, firstTurn: id },
      turns: [],
      bytes: 0,
    };
    const before = this.#turns.get(id);
    const bytes = turnBytes(turn) - (before === undefined ? 0 : turnBytes(before));
    if (before === undefined) session.turns.push(turn);
    else session.turns[session.turns.indexOf(before)] = turn;
    session.bytes += bytes;
    this.#bytes += bytes;
    this.#turns.set(id, turn);
    this.#sessions.delete(key);
    this.#sessions.set(key, session);
  }

  #drop(key: string, { turns, bytes }: Session): void {
    for (const { id } of turns) this.#turns.delete(id);
    this.#sessions.delete(key);
    this.#bytes -= bytes;
    this.#sorted = null;
  }

  #inOrder(): readonly Turn[] {
    return (this.#sorted ??= [...this.#turns.values()].toSorted((a, b) => byText(a.id, b.id)));
  }
}
