import type { Asker } from '../engines/ask.ts';
import { NoAnswer } from '../engines/ask.ts';
import type { EngineSigns, RankFigures } from '../engines/engine.ts';
import type { Fleet } from './fleet.ts';
import { HangJudge, type HangOptions } from './hang.ts';
import { REASONS, type Worker } from './worker.ts';

/** The errors of a connection to a host that is down or unreachable. */
const SILENCE: ReadonlySet<string | undefined> = new Set(['ETIMEDOUT', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH']);

const isSilence = (error: unknown): boolean =>
  error instanceof NoAnswer || SILENCE.has((error as NodeJS.ErrnoException).code);

/** Sends requests to an engine and remembers whether any was answered; errors, refused connections and unknown hosts count. */
export class AnswerProbe {
  hasAnswer = false;
  readonly ask: Asker;

  constructor(asker: Asker) {
    this.ask = async (path) => {
      try {
        const reply = await asker(path);
        this.hasAnswer = true;
        return reply;
      } catch (error) {
        this.hasAnswer ||= !isSilence(error);
        throw error;
      }
    };
  }
}

/** What a check of an engine found, for all of its ranks. */
export interface EngineLook {
  readonly askedMs: number;
  readonly isAnswering: boolean;
  readonly isWell: boolean;
  readonly isPaused: boolean;
  readonly signs: EngineSigns | null;
}

/** Workers of one engine that hang get no new requests (reason `hung`) until they work again. */
export class HangWatch {
  readonly #fleet: Fleet;
  readonly #options: HangOptions;
  readonly #onHung: (worker: Worker, proof: string) => void;
  readonly #judges = new Map<Worker, HangJudge>();

  constructor(fleet: Fleet, options: HangOptions, onHung: (worker: Worker, proof: string) => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#onHung = onHung;
  }

  /** The worker has requests and sent nothing for a while, or it hangs: its figures decide. */
  isInDoubt(worker: Worker): boolean {
    if ((worker.reasons & REASONS.hung) !== 0) return true;
    // Early enough that the figures are known long before they prove anything.
    const quietMs = performance.now() - worker.quietSinceMs;
    return this.#fleet.load(worker) > 0 && quietMs > this.#options.hungAfterMs / 6;
  }

  /** The engine passed its check and answers requests. */
  clear(): void {
    this.#judges.clear();
  }

  /** @returns the workers that hung and work again */
  look(workers: Iterable<Worker>, { signs, ...found }: EngineLook): Worker[] {
    const nowMs = performance.now();
    const figures = signs?.figures ?? null;
    const mayBePaused = signs?.mayBePaused === true;
    const back: Worker[] = [];
    for (const worker of workers) {
      const own = figures === null ? null : figuresOf(figures, worker);
      // A byte of a response is progress, whatever the figures say.
      const progress = `${own?.progress} ${worker.lastReadMs}`;
      const running = own?.running ?? null;
      const verdict = this.#judgeOf(worker).judge({ ...found, nowMs, mayBePaused, running, progress });
      if (verdict === 'unclear' || !(this.#fleet.has(worker) || this.#fleet.leaving.has(worker))) continue;
      const wasHung = (worker.reasons & REASONS.hung) !== 0;
      if (verdict === 'works') {
        if (wasHung) back.push(worker);
        this.#fleet.setReason(worker, 'hung', false);
      } else if (!wasHung) {
        this.#fleet.setReason(worker, 'hung', true);
        this.#onHung(worker, verdict.hangs);
      }
    }
    return back;
  }

  #judgeOf(worker: Worker): HangJudge {
    let judge = this.#judges.get(worker);
    if (judge === undefined) this.#judges.set(worker, (judge = new HangJudge(this.#options)));
    return judge;
  }
}

/** The figures of the worker's own rank; without a rank, the sum of all ranks. */
function figuresOf(all: readonly RankFigures[], { rank }: Worker): RankFigures | null {
  if (rank !== null && all.length > 1) return all.find((figures) => figures.rank === rank) ?? all[rank] ?? null;
  if (all.length === 0) return null;
  const running = all.reduce((sum, figures) => sum + figures.running, 0);
  return { rank: 0, running, progress: all.map(({ progress }) => progress).join(' ') };
}
