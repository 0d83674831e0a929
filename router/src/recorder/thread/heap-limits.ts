import { getHeapStatistics } from 'node:v8';
import { HeapGuard } from '../../admit/heap-guard.ts';
import type { Refusal } from './tokens/in-lanes.ts';

const SHORT: Refusal = {
  code: 'overloaded',
  message: 'The thread that keeps tokens is short of memory. Retry later, or give the router a larger heap.',
};

/** Keeps the recorder thread from V8's limit of its heap, which ends the thread: the limits of its caches fit in, and new work waits outside. */
export class HeapLimits {
  readonly #guard: Pick<HeapGuard, 'look' | 'isHigh'>;
  readonly #limitBytes: number;

  constructor(
    guard: Pick<HeapGuard, 'look' | 'isHigh'> = new HeapGuard(),
    limitBytes = getHeapStatistics().heap_size_limit,
  ) {
    this.#guard = guard;
    this.#limitBytes = limitBytes;
  }

  /** @param wanted the limit that its option has. Only a part of the trees is in the heap; `--max-old-space-size` may make it smaller still */
  treeBytes(wanted: number): number {
    return wanted <= this.#limitBytes ? wanted : this.#limitBytes / 2;
  }

  /** Sessions are in the heap, and in the store: those that do not fit are read again. */
  chatBytes(wanted: number): number {
    return Math.min(wanted, this.#limitBytes / 4);
  }

  /** Why no new work is taken now; null: it is. */
  refusal(): Refusal | null {
    this.#guard.look(performance.now());
    return this.#guard.isHigh ? SHORT : null;
  }
}
