import { parentPort } from 'node:worker_threads';
import { BodyScan } from './body-scan.ts';
import type { ScanCall } from './scan-thread.ts';

/** The program of the thread that reads large bodies. */
const scan = new BodyScan();
parentPort!.on('message', ({ memory, bytes, question }: ScanCall) => {
  parentPort!.postMessage(scan.scan(Buffer.from(memory, 0, bytes), question), []);
});
