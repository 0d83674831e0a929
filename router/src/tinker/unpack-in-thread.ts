import { parentPort } from 'node:worker_threads';
import { serveCalls } from '../threads/serve-calls.ts';
import { unpack } from './unpack.ts';

/** The program of the thread that unpacks archives of weights. */
serveCalls(parentPort!, { unpack });
