/** Minimum time between two log lines. */
const INTERVAL_MS = 60_000;

/** Calls back for a log line when counts have grown, at most once a minute. */
export class GrowthLog {
  #logged: Readonly<Record<string, number>> = {};
  #loggedMs = -Infinity;

  /** @param write is called with how much they have grown since it was called last */
  log<Counts extends Readonly<Record<string, number>>>(counts: Counts, write: (more: Counts) => void): void {
    const more = Object.entries(counts).map(([name, count]) => [name, count - (this.#logged[name] ?? 0)] as const);
    const nowMs = performance.now();
    if (nowMs - this.#loggedMs < INTERVAL_MS || more.every(([, count]) => count <= 0)) return;
    write(Object.fromEntries(more) as Counts);
    this.#logged = counts;
    this.#loggedMs = nowMs;
  }
}
