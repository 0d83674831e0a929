import { parentPort, workerData } from 'node:worker_threads';
import { serveCalls } from '../../threads/serve-calls.ts';
import { recorderCalls } from './recorder-calls.ts';
import type { RecorderOptions } from '../tap/recorder-thread.ts';

/** The program of the recorder thread: tokenizer, token tree and store block here, and nowhere else. */
serveCalls(parentPort!, await recorderCalls(workerData as RecorderOptions));
