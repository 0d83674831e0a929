import { setTimeout as delay } from 'node:timers/promises';
import { type Members, withMembers } from '../../kit/json-edit.ts';
import { chatAnswers, readAnswer } from '../thread/read/read-answer.ts';
import { CHAT_PATH } from '../../engines/dialects/calls.ts';
import { chatIds, withoutRefused } from '../../engines/dialects/chat.ts';
import { dialectOf } from '../../engines/dialects/dialects.ts';
import { readChat } from '../thread/read/read-chat.ts';
import { commonLength } from '../thread/tokens/ids.ts';
import { Caller, type CallerAnswer } from './caller.ts';
import type { RecordedCall, RecordedSample } from './recording.ts';

export interface ReplayOptions {
  readonly against: URL;
  readonly apiKey?: string;
  /** null: at the times at which they were recorded. */
  readonly concurrency: number | null;
}

/** How one call went this time. */
export type Verdict =
  | { readonly kind: 'same' }
  /** `at`: the first different token of the first different sample; with its ids, -1 for a missing token. */
  | {
      readonly kind: 'different';
      readonly turn: string;
      readonly at: number;
      readonly recorded: number;
      readonly now: number;
    }
  | { readonly kind: 'failed'; readonly reason: string }
  /** The answer, or the recording, has no ids. */
  | { readonly kind: 'not comparable' };

export interface Replayed {
  readonly call: RecordedCall;
  readonly verdict: Verdict;
  readonly ttftMs: number;
  readonly totalMs: number;
  readonly tokens: number;
}

/** Sends recorded requests again and compares what is sampled. One goes out when those that it goes on from are answered. */
export async function replay(
  calls: readonly RecordedCall[],
  { against, apiKey, concurrency }: ReplayOptions,
  onReplayed: (replayed: Replayed) => void,
  onSend: () => void = () => {},
): Promise<void> {
  const caller = new Caller(against, apiKey);
  const beganMs = performance.now();
  const firstMs = calls[0]?.startedAtMs ?? 0;
  const done = new Map<string, Promise<void>>();
  const room = new Room(concurrency ?? Infinity);
  const run = async (call: RecordedCall): Promise<void> => {
    for (const turn of call.parents) await done.get(turn);
    if (concurrency === null) await delay(Math.max(0, call.startedAtMs - firstMs - (performance.now() - beganMs)));
    await room.enter();
    onSend();
    try {
      onReplayed(await ask(caller, call));
    } finally {
      room.leave();
    }
  };
  try {
    for (const call of calls) {
      const answered = run(call);
      for (const { turn } of call.samples) done.set(turn, answered);
    }
    await Promise.all(done.values());
  } finally {
    caller.close();
  }
}

async function ask(caller: Caller, call: RecordedCall): Promise<Replayed> {
  const startMs = performance.now();
  try {
    const { status, body, isEventStream, firstByteMs } = await askForIds(caller, call);
    const totalMs = performance.now() - startMs;
    const ttftMs = firstByteMs - startMs;
    if (status !== 200) {
      const reason = `${status} ${body.slice(0, 200)}`;
      return { call, verdict: { kind: 'failed', reason }, ttftMs, totalMs, tokens: 0 };
    }
    const samples = answerTokens(call.path, isEventStream, body);
    const tokens = samples.reduce((sum, ids) => sum + ids.length, 0);
    return { call, verdict: compare(call.samples, samples), ttftMs, totalMs, tokens };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return { call, verdict: { kind: 'failed', reason: code ?? message }, ttftMs: 0, totalMs: 0, tokens: 0 };
  }
}

/** Also requests the ids of sampled tokens: of a recorded chat the router got them, not the client. An engine ignores unknown members. */
async function askForIds(caller: Caller, call: RecordedCall): Promise<CallerAnswer> {
  const asking = call.path === CHAT_PATH ? chatIds : (dialectOf(call.path)?.request.asksForIds ?? {});
  const post = (members: Members): Promise<CallerAnswer> =>
    caller.post(call, withMembers(call.body, members) ?? call.body);
  const answer = await post(asking);
  const others = answer.status === 400 ? withoutRefused(asking, answer.body) : null;
  return others === null ? answer : post(others);
}

/** The ids of each sample of an answer; none where the answer does not tell all of them. */
export function answerTokens(path: string, isEventStream: boolean, body: string): readonly (readonly number[])[] {
  const bytes = Buffer.from(body);
  const dialect = dialectOf(path);
  try {
    const samples =
      dialect === null ? readChat(chatAnswers(isEventStream, bytes)) : readAnswer(dialect, isEventStream, bytes);
    return samples.toSorted((a, b) => a.index - b.index).map(({ ids }) => [...ids]);
  } catch {
    return [];
  }
}

/** An export may have some of the samples of a call only, so where they stand says nothing: each has to be there. */
function compare(recorded: readonly RecordedSample[], now: readonly (readonly number[])[]): Verdict {
  const told = recorded.filter(({ ids }) => ids.length > 0);
  if (now.length === 0 || told.length === 0) return { kind: 'not comparable' };
  const left = [...now];
  const missing = new Set<RecordedSample>();
  // What only few can be is looked for first: whole samples, then the longest beginnings.
  const order = told.toSorted((a, b) => Number(a.isCut) - Number(b.isCut) || b.ids.length - a.ids.length);
  for (const sample of order) {
    const found = left.findIndex((ids) => isSame(sample, ids));
    if (found >= 0) left.splice(found, 1);
    else missing.add(sample);
  }
  const first = told.find((sample) => missing.has(sample));
  if (first === undefined) return { kind: 'same' };
  const other = left.toSorted((a, b) => commonLength(first.ids, b) - commonLength(first.ids, a))[0] ?? [];
  const at = commonLength(first.ids, other);
  return { kind: 'different', turn: first.turn, at, recorded: first.ids[at] ?? -1, now: other[at] ?? -1 };
}

/** A truncated sample is the beginning of the new one. */
const isSame = ({ ids, isCut }: RecordedSample, now: readonly number[]): boolean =>
  commonLength(ids, now) === ids.length && (isCut || now.length === ids.length);

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
