import { parentPort } from 'node:worker_threads';
import { serveCalls } from '../threads/serve-calls.ts';
import { sampleCalls } from './sample-calls.ts';

/** The program of the thread that reads large samples and answers. */
serveCalls(parentPort!, sampleCalls);
