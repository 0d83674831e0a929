import { parentPort, workerData } from 'node:worker_threads';
import { serveCalls } from '../../../threads/serve-calls.ts';
import { type TokenizerSource, loadTokenizer } from './load-tokenizer.ts';

/** The program of the thread that encodes large texts. */
const { path, choice } = workerData as TokenizerSource;
const tokenizer = await loadTokenizer(path, choice);

const encodeCalls = {
  async encode({ text, addSpecial }: { readonly text: string; readonly addSpecial: boolean }): Promise<Int32Array> {
    return Int32Array.from(await tokenizer.encode(text, addSpecial));
  },
};

export type EncodeCalls = typeof encodeCalls;

serveCalls(parentPort!, encodeCalls);
