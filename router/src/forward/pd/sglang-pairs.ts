import { RouterError } from '../../kit/errors.ts';
import { after } from '../../threads/worker-thread.ts';
import type { BodyThread } from '../body-calls.ts';
import { logprobsMerging } from './logprobs.ts';
import type { Handover, Met, PairStyle } from './meeting.ts';

/** SGLang's: both engines get the same bytes at once, and meet in a room. */
export function sglangPairs(thread: BodyThread): PairStyle {
  const read = (answer: Buffer, isEventStream: boolean) =>
    after(thread.run('packedLists', answer, isEventStream), (lists): Handover => ({
      decode: null,
      merging: logprobsMerging(lists, thread),
    }));
  return {
    meet: (path, body, { host, bootstrapPort }) =>
      after(thread.run('bootstrap', path, body, { host, port: bootstrapPort }), (made): Met => {
        if ('code' in made) return new RouterError(made.code, made.message);
        return { prefill: made.bytes, decode: made.bytes, read: made.asksForLogprobs ? read : null };
      }),
  };
}
