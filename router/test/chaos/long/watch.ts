import type { Child, RouterChild } from './child.ts';
import { type Point, lastHalf, mb, slopePerMinute } from './figures.ts';

/** Shorter than this a line through the points says nothing. */
const MIN_JUDGED_MS = 150_000;

export interface Limits {
  readonly usedMbPerMinute: number;
  readonly rssMbPerMinute: number;
  /** Above the p99 of an idle process. */
  readonly loopP99Ms: number;
  readonly minJudgedMs?: number;
}

/** Looks at the router's memory, files and loop while a phase runs, and at the loop of an idle process beside it. */
export class Watch {
  readonly used: Point[] = [];
  readonly rss: Point[] = [];
  readonly files: Point[] = [];
  readonly #router: RouterChild;
  readonly #idle: Child;
  readonly #everyMs: number;
  #isOver = false;
  #running: Promise<void> | null = null;

  constructor(router: RouterChild, idle: Child, everyMs: number) {
    this.#router = router;
    this.#idle = idle;
    this.#everyMs = everyMs;
  }

  async start(): Promise<void> {
    await this.#router.ask('begin anew');
    await this.#idle.ask('begin anew');
    this.#running = this.#look();
  }

  async #look(): Promise<void> {
    let next = performance.now();
    while (!this.#isOver) {
      const { usedBytes, rssBytes, openFiles } = await this.#router.ask('report after gc');
      const atMs = performance.now();
      this.used.push({ atMs, value: usedBytes });
      this.rss.push({ atMs, value: rssBytes });
      this.files.push({ atMs, value: openFiles });
      next += this.#everyMs;
      while (!this.#isOver && performance.now() < next)
        await new Promise((resolve) => setTimeout(resolve, Math.min(200, this.#everyMs)));
    }
  }

  /** @returns figures for people, and complaints. */
  async stop(limits: Limits): Promise<{ figures: string[]; complaints: string[] }> {
    this.#isOver = true;
    await this.#running;
    const router = (await this.#router.ask('report')).loop;
    const idle = (await this.#idle.ask('report')).loop;
    return judgeWatch({ used: this.used, rss: this.rss, files: this.files, router, idle }, limits);
  }
}

type Loop = { readonly p99Ms: number; readonly maxMs: number };

export function judgeWatch(
  seen: { used: Point[]; rss: Point[]; files: Point[]; router: Loop; idle: Loop },
  limits: Limits,
): { figures: string[]; complaints: string[] } {
  const { used, rss, files, router, idle } = seen;
  const complaints: string[] = [];
  const spanMs = (used.at(-1)?.atMs ?? 0) - (used[0]?.atMs ?? 0);
  const isJudged = spanMs >= (limits.minJudgedMs ?? MIN_JUDGED_MS);
  const slopes = { used: slopePerMinute(lastHalf(used)) / 1e6, rss: slopePerMinute(lastHalf(rss)) / 1e6 };
  const openFiles = slopePerMinute(lastHalf(files));
  if (isJudged && slopes.used >= limits.usedMbPerMinute)
    complaints.push(`memory grows: heapUsed + external by ${slopes.used.toFixed(2)} MB/min over the last half`);
  if (isJudged && slopes.rss >= limits.rssMbPerMinute)
    complaints.push(`memory grows: resident by ${slopes.rss.toFixed(2)} MB/min over the last half`);
  // Connections go up and down with the load; a leak goes up only.
  const mean = (points: readonly Point[]): number => points.reduce((sum, { value }) => sum + value, 0) / points.length;
  if (isJudged && openFiles > Math.max(5, mean(files) * 0.1))
    complaints.push(`leaked: open files grow by ${openFiles.toFixed(1)} a minute over the last half`);
  if (router.p99Ms > idle.p99Ms + limits.loopP99Ms)
    complaints.push(
      `the loop is late: p99 ${router.p99Ms.toFixed(1)} ms, ${idle.p99Ms.toFixed(1)} ms in an idle process`,
    );
  const range = (points: readonly Point[], show: (value: number) => string): string =>
    `${show(points[0]?.value ?? 0)} → ${show(points.at(-1)?.value ?? 0)} (max ${show(Math.max(...points.map(({ value }) => value)))})`;
  const judged = isJudged ? '' : ' (too short to be judged)';
  const figures = [
    `heapUsed + external after gc, MB: ${range(used, mb)}, slope of the last half ${slopes.used.toFixed(2)} MB/min${judged}`,
    `resident, MB: ${range(rss, mb)}, slope of the last half ${slopes.rss.toFixed(2)} MB/min${judged}`,
    `open files: ${range(files, String)}`,
    `loop late by p99 ${router.p99Ms.toFixed(1)} ms (max ${router.maxMs.toFixed(0)}); idle process p99 ${idle.p99Ms.toFixed(1)} ms (max ${idle.maxMs.toFixed(0)})`,
  ];
  return { figures, complaints };
}
