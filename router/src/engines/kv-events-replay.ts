import { setImmediate as nextTick } from 'node:timers/promises';
import { type KvBatch, readKvBatch } from './kv-events.ts';

export type Zmq = typeof import('zeromq');

/** A batch as it came, or words on why it can't be read. */
export interface Numbered {
  readonly seq: number;
  readonly batch: KvBatch | string;
}

export const timeOf = ({ batch }: Numbered): number => (typeof batch === 'string' ? Number.NaN : batch.ts);

/** Reads `…, number, payload`. @returns null: it has no number, or that of the end of a replay, which is -1. */
export function readNumbered(frames: readonly Buffer[]): Numbered | null {
  const number = frames.at(-2);
  if (number?.length !== 8) return null;
  const seq = number.readBigUInt64BE();
  if (seq > BigInt(Number.MAX_SAFE_INTEGER)) return null;
  return { seq: Number(seq), batch: readKvBatch(frames.at(-1)!) };
}

/** Batches that are handed over before others get their turn. */
const TURN = 32;

/**
 * Asks an engine to send its batches from `from` on again, as far as it keeps them, and hands them over for as long as
 * `onBatch` wants more. Over when the engine says so, is silent for `timeoutMs`, or `signal` aborts.
 */
export async function replay(
  zmq: Zmq,
  endpoint: string,
  { from, timeoutMs, signal }: { from: number; timeoutMs: number; signal: AbortSignal },
  onBatch: (one: Numbered, isFirst: boolean) => boolean,
): Promise<void> {
  // No bound for what waits here: an engine throws away what finds no place.
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
    // Silence, or an endpoint that can't be: what it brought so far counts.
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}
