import { Session } from 'node:inspector';
import { getHeapSpaceStatistics, getHeapStatistics } from 'node:v8';

/**
 * Shares of the heap's limit: from `HIGH` on new requests are refused, until the share is below `LOW`. V8 ends the process after four
 * collections in a row that leave 80 % or more and took most of the time (`CheckIneffectiveMarkCompact`). Requests in flight still
 * allocate: on a busy machine, refusing from 80 % on reached 86 % and one or two such collections in 7 of 10 runs; from 70 % on, 77 % and
 * none in 10. Garbage alone reaches that only if more than 40 % is in use, because V8 collects half-way to the limit at the latest.
 */
const HIGH = 0.7;
const LOW = 0.65;
/** While requests are refused little is allocated, so V8 would not collect garbage by itself. */
const COLLECT_AFTER_MS = 5_000;
/** V8's limit is for both generations together, but it fails with a full old generation. Three semi-spaces of 64 MB (V8 13.6). */
const YOUNG_BYTES = 201_326_592;

/** The old generation of the heap. */
export interface OldSpace {
  readonly usedBytes: number;
  readonly limitBytes: number;
}

/**
 * Refuses new requests while the heap is close to V8's limit, so that requests in flight can finish: a process that reaches the limit
 * ends.
 */
export class HeapGuard {
  /** New requests are refused. */
  isHigh = false;
  readonly #read: () => OldSpace;
  readonly #collect: () => void;
  /** The time of the next forced collection (monotonic ms). */
  #collectMs = 0;

  constructor(read: () => OldSpace = oldSpaceReader(), collect: () => void = collectGarbage) {
    this.#read = read;
    this.#collect = collect;
  }

  /** Called each tick. */
  look(nowMs: number): void {
    const { usedBytes, limitBytes } = this.#read();
    const share = usedBytes / limitBytes;
    if (!this.isHigh) {
      this.isHigh = share >= HIGH;
      this.#collectMs = nowMs + COLLECT_AFTER_MS;
      return;
    }
    this.isHigh = share >= LOW;
    if (!this.isHigh || nowMs < this.#collectMs) return;
    // Rarely: on a large heap a collection blocks the process for seconds, and if the last one did not help, the next hardly will.
    this.#collectMs = nowMs + 6 * COLLECT_AFTER_MS;
    this.#collect();
  }
}

/** @param flags of the process; the last one wins */
export function oldSpaceLimit(heapLimitBytes: number, flags: string): number {
  const given = [...flags.matchAll(/--max[-_]old[-_]space[-_]size=(\d+)/g)].at(-1);
  if (given !== undefined && Number(given[1]) > 0) return Math.min(heapLimitBytes, Number(given[1]) * 1_048_576);
  return Math.max(heapLimitBytes / 2, heapLimitBytes - YOUNG_BYTES);
}

function oldSpaceReader(): () => OldSpace {
  const flags = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ');
  const limitBytes = oldSpaceLimit(getHeapStatistics().heap_size_limit, flags);
  return () => {
    const usedBytes = getHeapStatistics().used_heap_size;
    // Far from the limit the sum of both generations is enough.
    if (usedBytes < LOW * limitBytes) return { usedBytes, limitBytes };
    const young = getHeapSpaceStatistics()
      .filter(({ space_name: name }) => name.startsWith('new_'))
      .reduce((sum, { space_used_size: bytes }) => sum + bytes, 0);
    return { usedBytes: usedBytes - young, limitBytes };
  };
}

/** Does nothing if `--permission` refuses the inspector. */
function collectGarbage(): void {
  const session = new Session();
  try {
    session.connect();
  } catch {
    return;
  }
  // Node.js 24.21 does not exit if the session is disconnected in the callback.
  session.post('HeapProfiler.collectGarbage', () => setImmediate(() => session.disconnect()));
}
