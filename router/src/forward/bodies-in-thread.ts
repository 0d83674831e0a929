import { parentPort } from 'node:worker_threads';
import { serveCalls } from '../threads/serve-calls.ts';
import { bodyCalls } from './body-calls.ts';

/** The program of the thread that reads and changes large bodies. */
serveCalls(parentPort!, bodyCalls);
