import { setImmediate as nextTick } from 'node:timers/promises';
import { type KvBatch, readKvBatch } from './kv-events.ts';

export type Zmq = typeof import('zeromq');

/** A batch and its number; a text if it cannot be read. */
export interface Numbered {
  readonly seq: number;
  readonly batch: KvBatch | string;
}

export const timeOf = ({ batch }: Numbered): number => (typeof batch === 'string' ? Number.NaN : batch.ts);

/** Reads `…, number, payload`. @returns null if there is no number, or it is -1 for the end of a replay */
export function readNumbered(frames: readonly Buffer[]): Numbered | null {
  const number = frames.at(-2);
  if (number?.length !== 8) return null;
  const seq = number.readBigUInt64BE();
  if (seq > BigInt(Number.MAX_SAFE_INTEGER)) return null;
  return { seq: Number(seq), batch: readKvBatch(frames.at(-1)!) };
}

/** Batches between two yields to the event loop. */
const TURN = 32;

/**
 * Requests an engine's batches from `from` on, until `onBatch` returns false, the engine ends the replay, is silent for
 * `timeoutMs`, or `signal` aborts.
 */
export async function replay(
  zmq: Zmq,
  endpoint: string,
  { from, timeoutMs, signal }: { from: number; timeoutMs: number; signal: AbortSignal },
  onBatch: (one: Numbered, isFirst: boolean) => boolean,
): Promise<void> {
  // No limit: an engine drops what exceeds one.
  const socket = new zmq.Dealer({
    linger: 0,
    ipv6: true,
    receiveHighWaterMark: 0,
    receiveTimeout: timeoutMs,
    sendTimeout: timeoutMs,
  });
  const close = (): void => socket.close();
  signal.addEventListener('abort', close);
  try {
    socket.connect(endpoint);
    const number = Buffer.alloc(8);
    number.writeBigUInt64BE(BigInt(from));
    await socket.send(['', number]);
    for (let count = 0; ; count++) {
      // `'', topic, number, payload`; older releases leave out the topic.
      const one = readNumbered(await socket.receive());
      if (one === null || !onBatch(one, count === 0)) return;
      if (count % TURN === 0) await nextTick();
    }
  } catch {
    // A timeout or an invalid endpoint: what arrived so far counts.
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}
