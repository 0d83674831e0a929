// What clients talk to: a router that is under test, and how it learns of sessions.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Child } from '../child.ts';

export interface System {
  readonly child: Child;
  readonly url: string;
  /** The headers of a turn. */
  headers(session: string, isLastTurn: boolean): Record<string, string>;
  /** JSON members of a turn's body, each with a comma after it. */
  fields(session: string): string;
  /**
   * For how long it has held the turn that it holds longest; 0: it holds none.
   *
   * @param waitedMs for how long the turn of a session has had no answer
   */
  heldMs(waitedMs: (session: string) => number): Promise<number>;
  /** The call that ends a session after its last turn; null: there is none. */
  release(session: string): { readonly path: string; readonly body: string } | null;
}

const readyTimeoutMs = 30_000;

/** Asks until the JSON there says that the system is ready; ends the system if that takes too long. */
export async function untilReady(
  { child, url }: System,
  path: string,
  isReady: (state: Record<string, unknown>) => boolean,
): Promise<void> {
  const deadline = performance.now() + readyTimeoutMs;
  while (performance.now() < deadline && !child.hasEnded()) {
    const state = await fetch(url + path).then(
      async (answer) => (await answer.json()) as Record<string, unknown>,
      () => null, // it does not listen yet
    );
    if (state !== null && isReady(state)) return;
    await sleep(50);
  }
  const words = child.finalEvent();
  await child.stop();
  throw new Error(`the router is not ready:\n${words}`);
}
