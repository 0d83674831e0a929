import { Session } from 'node:inspector';
import { getHeapSpaceStatistics, getHeapStatistics } from 'node:v8';

/**
 * Parts of the heap's limit: from the first on nothing new is taken, until it is below the second again. V8 ends the process after four
 * collections in a row that leave 80 % or more and took most of the time (`CheckIneffectiveMarkCompact`). What is in flight still
 * grows: on a busy machine a heap that refused from 80 % on reached 86 % and one or two such collections in 7 of 10 runs; from 70 % on,
 * 77 % and none in 10. Garbage alone gets there only where more than 40 % is in use: V8 collects half-way to the limit at the latest.
 */
const HIGH = 0.7;
const LOW = 0.65;
/** While requests are refused hardly anything is allocated, so V8 would not collect garbage by itself. */
const COLLECT_AFTER_MS = 5_000;
/** V8 reports one limit for both generations, but fails with a full old one. Three semi-spaces of 64 MB (V8 13.6). */
const YOUNG_BYTES = 201_326_592;

/** The part of a heap that V8 dies of. */
export interface OldSpace {
  readonly usedBytes: number;
  readonly limitBytes: number;
}

/**
 * Watches the memory of the process: close to V8's limit the router refuses new work, so that what it has can be finished.
 * A process that runs into the limit dies with all its streams.
 */
export class HeapGuard {
  /** Nothing new is to be taken. */
  isHigh = false;
  readonly #read: () => OldSpace;
  readonly #collect: () => void;
  /** When garbage is to be looked for (monotonic ms). */
  #collectMs = 0;

  constructor(read: () => OldSpace = oldSpaceReader(), collect: () => void = collectGarbage) {
    this.#read = read;
    this.#collect = collect;
  }

  /** To be called a few times a second. */
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
    // Not often: it halts the process, where the heap is large for seconds, and if it did not help the next hardly will.
    this.#collectMs = nowMs + 6 * COLLECT_AFTER_MS;
    this.#collect();
  }
}

/** The old generation's limit. `flags`: those that the process was started with, the last one wins. */
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
    // Far from the limit the sum of both generations is enough, and takes a tenth of the time.
    if (usedBytes < LOW * limitBytes) return { usedBytes, limitBytes };
    const young = getHeapSpaceStatistics()
      .filter(({ space_name: name }) => name.startsWith('new_'))
      .reduce((sum, { space_used_size: bytes }) => sum + bytes, 0);
    return { usedBytes: usedBytes - young, limitBytes };
  };
}

/** `--permission` may refuse the inspector: then the heap stays as it is. */
function collectGarbage(): void {
  const session = new Session();
  try {
    session.connect();
  } catch {
    return;
  }
  // Disconnected inside of the callback, the process would not end (Node.js 24.21).
  session.post('HeapProfiler.collectGarbage', () => setImmediate(() => session.disconnect()));
}
