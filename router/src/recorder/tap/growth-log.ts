/** Minimum time between two log lines. */
const SAY_MS = 60_000;

/** Has a line logged when counts have grown, at most once a minute. */
export class GrowthLog {
  #said: Readonly<Record<string, number>> = {};
  #saidMs = -Infinity;

  /** @param log is called with how much they have grown since it was called last */
  say<Counts extends Readonly<Record<string, number>>>(counts: Counts, log: (more: Counts) => void): void {
    const more = Object.entries(counts).map(([name, count]) => [name, count - (this.#said[name] ?? 0)] as const);
    const nowMs = performance.now();
    if (nowMs - this.#saidMs < SAY_MS || more.every(([, count]) => count <= 0)) return;
    log(Object.fromEntries(more) as Counts);
    this.#said = counts;
    this.#saidMs = nowMs;
  }
}
