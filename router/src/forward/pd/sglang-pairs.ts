import { RouterError } from '../../kit/errors.ts';
import { addBootstrap } from './bootstrap.ts';
import { logprobsMerging } from './logprobs.ts';
import type { PairStyle } from './meeting.ts';

/** SGLang's: both engines get the same bytes at once, and meet in a room. */
export const sglangPairs: PairStyle = {
  meet(path, body, { host, bootstrapPort }) {
    const forBoth = addBootstrap(path, body, { host, port: bootstrapPort });
    if (forBoth instanceof RouterError) return forBoth;
    const { bytes, asksForLogprobs } = forBoth;
    const read = (answer: Buffer, isEventStream: boolean) => ({
      decode: null,
      merging: logprobsMerging(answer, isEventStream),
    });
    return { prefill: bytes, decode: bytes, read: asksForLogprobs ? read : null };
  },
};
