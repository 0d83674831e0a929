import { parentPort } from 'node:worker_threads';
import { serveCalls } from '../threads/serve-calls.ts';
import { answerCalls } from './answer-calls.ts';

/** The program of the thread that reads large requests and changes large responses. */
serveCalls(parentPort!, answerCalls);
