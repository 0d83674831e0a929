import { parentPort, workerData } from 'node:worker_threads';
import { ledgerCalls } from './ledger-calls.ts';
import type { LedgerOptions } from './ledger.ts';
import { serveCalls } from './thread.ts';

/** The program of the trajectory thread: tokenizer, token tree and store block here, and nowhere else. */
serveCalls(parentPort!, await ledgerCalls(workerData as LedgerOptions));
