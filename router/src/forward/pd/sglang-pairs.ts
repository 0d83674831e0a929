import { RouterError } from '../../kit/errors.ts';
import { after } from '../../threads/worker-thread.ts';
import type { BodyThread } from '../body-calls.ts';
import { logprobsMerge } from './logprobs.ts';
import type { Handover, Planned, PairStyle } from './pair-plan.ts';

/** SGLang: both engines get the same bytes at once, with the address of the prefill engine's bootstrap server and a room number. */
export function sglangPairs(thread: BodyThread): PairStyle {
  const read = (answer: Buffer, isEventStream: boolean) =>
    after(thread.run('packedLists', answer, isEventStream), (lists): Handover => ({
      decode: null,
      answerMerge: logprobsMerge(lists, thread),
    }));
  return {
    plan: (path, body, { host, bootstrapPort }) =>
      after(thread.run('bootstrap', path, body, { host, port: bootstrapPort }), (made): Planned => {
        if ('code' in made) return new RouterError(made.code, made.message);
        return { prefill: made.bytes, decode: made.bytes, read: made.asksForLogprobs ? read : null };
      }),
  };
}
