import * as z from 'zod';
import type { StateMap } from '../choose/state.ts';
import type { NamespaceStep } from './namespaces.ts';

/** Which prompt caches a swap leaves to later requests: none, those of sessions that go on, or all. */
export type Reset = 'all' | 'new_session' | 'none';

const engine = z.object({
  stage: z.string(),
  error: z.string().nullable(),
  /** Milliseconds that each stage took. */
  phases: z.record(z.string(), z.number()),
});

const entry = z.object({
  seq: z.int(),
  identity: z.string(),
  /** Where the engines find the weights; '': where each found those it started with; null: a trainer sent them. */
  path: z.string().nullable(),
  transition: z.enum(['async', 'sync']),
  reset: z.enum(['all', 'new_session', 'none']),
  mover: z.enum(['router', 'trainer']),
  startedAt: z.number(),
  endedAt: z.number().nullable(),
  /** An engine has loaded the weights. */
  hasLoaded: z.boolean(),
  namespace: z.string(),
  resetAllSeq: z.int(),
  engines: z.record(z.string(), engine),
});

/** A swap in the ledger. Replaced in place as it goes on. */
export type LedgerEntry = z.output<typeof entry>;

/** Older ones are forgotten. */
const MAX_ENTRIES = 4_096;
/** Older ones are kept without their engines. */
const MAX_DETAILED = 10;

/** The swaps of one set of workers, oldest first. With a data directory they survive the router. */
export class Ledger {
  readonly #state: StateMap;
  readonly #key: string;
  readonly #entries: LedgerEntry[] = [];
  #lastSeq = 0;

  constructor(state: StateMap, key: string) {
    this.#state = state;
    this.#key = key;
    for (const [name, json] of state.entries()) {
      if (!name.startsWith(`${key} `)) continue;
      const read = entry.safeParse(parseJson(json));
      if (read.success) this.#entries.push(read.data);
    }
    this.#entries.sort((a, b) => a.seq - b.seq);
    this.#lastSeq = this.last?.seq ?? Number(state.get(`${key} cleared`) ?? 0);
  }

  get last(): LedgerEntry | null {
    return this.#entries.at(-1) ?? null;
  }

  /** The newest swap whose weights an engine has loaded; null: the fleet has the weights it was started with. */
  get current(): LedgerEntry | null {
    return this.#entries.findLast(({ hasLoaded }) => hasLoaded) ?? null;
  }

  /** The newest swap of this identity. */
  find(identity: string): LedgerEntry | null {
    return this.#entries.findLast((each) => each.identity === identity) ?? null;
  }

  /** The newest swap before this one whose weights an engine has loaded. */
  before({ seq }: LedgerEntry): LedgerEntry | null {
    return this.#entries.findLast((each) => each.hasLoaded && each.seq < seq) ?? null;
  }

  latest(count: number): LedgerEntry[] {
    return this.#entries.slice(-count).toReversed();
  }

  add(order: Pick<LedgerEntry, 'identity' | 'path' | 'transition' | 'reset' | 'mover'>, nowMs: number): LedgerEntry {
    const seq = ++this.#lastSeq;
    // The reset of a swap that no engine has loaded has not happened.
    const before: NamespaceStep = this.current ?? { seq: 0, namespace: '', resetAllSeq: 0 };
    const added: LedgerEntry = {
      ...order,
      seq,
      startedAt: nowMs,
      endedAt: null,
      hasLoaded: false,
      // With its number, so that a return to an earlier identity does not find the cache of that time.
      namespace: order.reset === 'none' ? before.namespace : `${order.identity}#${seq}`,
      resetAllSeq: order.reset === 'all' ? seq : before.resetAllSeq,
      engines: {},
    };
    this.#entries.push(added);
    this.save(added);
    const old = this.#entries.at(-1 - MAX_DETAILED);
    if (old !== undefined) this.save({ ...old, engines: {} });
    if (this.#entries.length > MAX_ENTRIES) this.#state.delete(this.#nameOf(this.#entries.shift()!));
    return added;
  }

  save(changed: LedgerEntry): void {
    this.#state.set(this.#nameOf(changed), JSON.stringify(changed));
  }

  /** Forgets the swaps. Their numbers are not used again. */
  clear(): void {
    this.#state.set(`${this.#key} cleared`, String(this.#lastSeq));
    for (const each of this.#entries) this.#state.delete(this.#nameOf(each));
    this.#entries.length = 0;
  }

  #nameOf({ seq }: LedgerEntry): string {
    return `${this.#key} ${seq}`;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
