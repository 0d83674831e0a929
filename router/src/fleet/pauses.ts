import { type Stoppable, controlOf } from '../engines/controls.ts';

/** An engine generates only with all of them. */
type Part = 'generation' | 'weights' | 'kv_cache';

const MEMORY: readonly Part[] = ['weights', 'kv_cache'];

/** @param tags the parts of the memory that the request names; null: all */
function partsOf(what: Stoppable | undefined, tags: readonly unknown[] | null): readonly Part[] {
  if (what !== 'memory') return what === undefined ? [] : [what];
  return tags === null ? MEMORY : MEMORY.filter((part) => tags.includes(part));
}

interface Entry {
  /** The start of each control request that the engine has not answered. */
  readonly inFlight: Set<{ readonly sinceMs: number }>;
  /** What was paused and not resumed, and since when. */
  readonly stopped: Map<Part, number>;
}

/**
 * Engines that are paused, asleep or busy with a control request (a weight update takes minutes), as far as those
 * requests went through this router. Such an engine fails checks and makes no tokens without being broken. Another
 * client may resume it, so an entry counts for a limited time.
 */
export class Pauses {
  readonly #maxMs: () => number;
  readonly #nowMs: () => number;
  /** By `engineUrl`. */
  readonly #entries = new Map<string, Entry>();

  constructor(maxMs: () => number, nowMs: () => number = () => performance.now()) {
    this.#maxMs = maxMs;
    this.#nowMs = nowMs;
  }

  /**
   * A control request goes to an engine. @param tags see `memoryTagsIn`
   * @returns to be called when the engine has answered or will not answer
   */
  begin(engineUrl: string, path: string, tags: readonly unknown[] | null = null): (isDone: boolean) => void {
    const entry = this.#entryOf(engineUrl);
    const call = { sinceMs: this.#nowMs() };
    entry.inFlight.add(call);
    return (isDone) => {
      if (!entry.inFlight.delete(call)) return;
      const control = controlOf(path);
      if (isDone) {
        for (const part of partsOf(control?.pauses, tags)) entry.stopped.set(part, this.#nowMs());
        for (const part of partsOf(control?.resumes, tags)) entry.stopped.delete(part);
      }
      if (entry.inFlight.size === 0 && entry.stopped.size === 0 && this.#entries.get(engineUrl) === entry)
        this.#entries.delete(engineUrl);
    };
  }

  isPaused(engineUrl: string): boolean {
    const entry = this.#entries.get(engineUrl);
    if (entry === undefined) return false;
    const earliestMs = this.#nowMs() - this.#maxMs();
    return (
      [...entry.inFlight].some(({ sinceMs }) => sinceMs > earliestMs) ||
      [...entry.stopped.values()].some((sinceMs) => sinceMs > earliestMs)
    );
  }

  /** The engine was restarted, or reports that it is not paused. */
  forget(engineUrl: string): void {
    this.#entries.get(engineUrl)?.stopped.clear();
  }

  /** The engine has left the fleet: one that is added at its URL is another process, as far as is known. */
  left(engineUrl: string): void {
    this.#entries.delete(engineUrl);
  }

  #entryOf(engineUrl: string): Entry {
    let entry = this.#entries.get(engineUrl);
    if (entry === undefined) this.#entries.set(engineUrl, (entry = { inFlight: new Set(), stopped: new Map() }));
    return entry;
  }
}
