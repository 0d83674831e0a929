import type { Sink } from './sink.ts';

/** The size of the buffers that a client's connection uses again. */
const PART_BYTES = 65_536;
const PARTS_AT_A_TURN = 4;

/**
 * Sends a complete body, a part per turn of the event loop and no more than the sink takes, because TLS would encrypt and copy all of it
 * at once. The first part is sent in this turn. @param isWanted called before each turn; false: `done` is not called any more
 */
export function sendInParts(sink: Sink, body: Buffer, isWanted: () => boolean, done: () => void): void {
  let at = 0;
  let isComing = false;
  let isDone = false;
  const next = (): void => {
    isComing = false;
    if (isDone || !isWanted()) return;
    for (let i = 0; i < PARTS_AT_A_TURN && at < body.length; i++) {
      const end = Math.min(at + PART_BYTES, body.length);
      sink.body(body, at, end);
      at = end;
    }
    if (at === body.length) {
      // The rest is in the sink.
      sink.source = null;
      isDone = true;
      sink.flush();
      done();
    } else if (sink.flush()) {
      isComing = true;
      setImmediate(next);
    }
  };
  // Some sinks call `resume` without need.
  sink.source = { resume: () => (isComing ? undefined : next()) };
  next();
}
