import type { Turn } from '../../src/recorder/shared/turn.ts';
import type { TrajectoryStore } from '../../src/recorder/thread/store/store.ts';

let made = 0;

/** A turn with small, plausible content; `turnOf({ parent: earlier.id, keeps: 4 })` goes on from another. */
export function turnOf(given: Partial<Turn> = {}): Turn {
  const number = ++made;
  const ids = given.ids ?? Int32Array.from([10 * number, 10 * number + 1, 10 * number + 2, 10 * number + 3]);
  return {
    id: `turn-${String(number).padStart(8, '0')}`,
    session: 'session',
    group: '',
    tenant: '',
    parent: null,
    keeps: 0,
    index: 0,
    worker: 'http://127.0.0.1:30000',
    model: 'tiny',
    path: '/generate',
    startedAtMs: 1_700_000_000_000 + number,
    ttftMs: 12.5,
    generationMs: 250.25,
    ids,
    logprobs: given.logprobs ?? Float64Array.from(ids, (_, i) => (i < 2 ? 0 : -0.1 * i)),
    mask: given.mask ?? Uint8Array.from(ids, (_, i) => (i < 2 ? 0 : 1)),
    versions: [{ version: '7', from: 2, to: ids.length }],
    unknownLogprobs: 0,
    promptTokens: 2,
    outputTokens: ids.length - 2,
    cachedTokens: 0,
    finishReason: 'stop',
    drift: null,
    experts: null,
    request: null,
    answer: null,
    ...given,
  };
}

/** All turns of a store, or those of a session, sorted by id. */
export async function turnsIn(store: TrajectoryStore, session?: string): Promise<Turn[]> {
  const turns: Turn[] = [];
  const newest = await store.newest({ session, limit: 1_000_000 });
  for (const { id } of newest.toReversed()) turns.push((await store.get(id))!);
  return turns;
}
