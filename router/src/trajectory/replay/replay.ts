import { setTimeout as delay } from 'node:timers/promises';
import { answerTokens } from './answer-tokens.ts';
import type { RecordedTurn } from './recording.ts';
import { Caller } from './caller.ts';

export interface ReplayOptions {
  readonly against: URL;
  readonly apiKey?: string;
  /** null: at the times at which they were recorded. */
  readonly concurrency: number | null;
}

/** How one turn went this time. */
export type Verdict =
  | { readonly kind: 'same' }
  /** `at`: the first token that differs; its ids, -1 where there is none. */
  | { readonly kind: 'different'; readonly at: number; readonly recorded: number; readonly now: number }
  | { readonly kind: 'failed'; readonly reason: string }
  /** The answer, or the recording, tells no ids. */
  | { readonly kind: 'not comparable' };

export interface Replayed {
  readonly turn: RecordedTurn;
  readonly verdict: Verdict;
  readonly ttftMs: number;
  readonly totalMs: number;
  readonly tokens: number;
}

/** Sends recorded requests again and compares what is sampled. A turn goes out when the one that it goes on from is answered. */
export async function replay(
  turns: readonly RecordedTurn[],
  { against, apiKey, concurrency }: ReplayOptions,
  onReplayed: (replayed: Replayed) => void,
): Promise<void> {
  const caller = new Caller(against, apiKey);
  const beganMs = performance.now();
  const firstMs = turns[0]?.startedAtMs ?? 0;
  const done = new Map<string, Promise<void>>();
  const room = new Room(concurrency ?? Infinity);
  const run = async (turn: RecordedTurn): Promise<void> => {
    await done.get(turn.parent ?? '');
    if (concurrency === null) await delay(Math.max(0, turn.startedAtMs - firstMs - (performance.now() - beganMs)));
    await room.enter();
    try {
      onReplayed(await ask(caller, turn));
    } finally {
      room.leave();
    }
  };
  try {
    for (const turn of turns) done.set(turn.id, run(turn));
    await Promise.all(done.values());
  } finally {
    caller.close();
  }
}

async function ask(caller: Caller, turn: RecordedTurn): Promise<Replayed> {
  const startMs = performance.now();
  try {
    const { status, body, isEventStream, firstByteMs } = await caller.post(turn);
    const totalMs = performance.now() - startMs;
    const ttftMs = firstByteMs - startMs;
    if (status !== 200) {
      const reason = `${status} ${body.slice(0, 200)}`;
      return { turn, verdict: { kind: 'failed', reason }, ttftMs, totalMs, tokens: 0 };
    }
    const ids = answerTokens(body, isEventStream);
    return { turn, verdict: compare(turn.sampled, ids), ttftMs, totalMs, tokens: ids?.length ?? 0 };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return { turn, verdict: { kind: 'failed', reason: code ?? message }, ttftMs: 0, totalMs: 0, tokens: 0 };
  }
}

function compare(recorded: readonly number[], now: readonly number[] | null): Verdict {
  if (now === null || recorded.length === 0) return { kind: 'not comparable' };
  const length = Math.max(recorded.length, now.length);
  for (let at = 0; at < length; at++) {
    if (recorded[at] !== now[at]) return { kind: 'different', at, recorded: recorded[at] ?? -1, now: now[at] ?? -1 };
  }
  return { kind: 'same' };
}

/** Lets so many in at once, first come first. */
class Room {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  async enter(): Promise<void> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}
