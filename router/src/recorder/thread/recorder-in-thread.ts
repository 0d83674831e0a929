import { type Transferable, parentPort, workerData } from 'node:worker_threads';
import { serveCalls } from '../../threads/serve-calls.ts';
import { recorderCalls } from './recorder-calls.ts';
import type { RecorderOptions } from '../tap/recorder-thread.ts';

/** Less is copied: the answers of other calls may be in memory that the store keeps. */
const LARGE_BYTES = 1_048_576;

/** The memory of a changed body, which is given away: to copy one of megabytes takes milliseconds on either side. */
function bodyIn(value: unknown): Transferable[] {
  const { body, bytes } = (value ?? {}) as { readonly body?: unknown; readonly bytes?: unknown };
  const made = body ?? bytes;
  const isLarge = made instanceof Uint8Array && made.length >= LARGE_BYTES && made.length === made.buffer.byteLength;
  return isLarge ? [made.buffer as ArrayBuffer] : [];
}

/** The program of the recorder thread: tokenizer, token tree and store block here, and nowhere else. */
serveCalls(parentPort!, await recorderCalls(workerData as RecorderOptions), bodyIn);
