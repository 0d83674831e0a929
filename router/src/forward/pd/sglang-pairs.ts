import { RouterError } from '../../kit/errors.ts';
import { bufferOf } from '../../kit/bytes.ts';
import type { BodyThread } from '../body-thread.ts';
import { type PairBody, addBootstrap } from './bootstrap.ts';
import { type PackedLists, logprobsMerging, packedLists } from './logprobs.ts';
import { type Handover, LARGE_BYTES, type Meeting, type PairStyle } from './meeting.ts';

/** SGLang's: both engines get the same bytes at once, and meet in a room. */
export function sglangPairs(thread: BodyThread): PairStyle {
  return {
    meet(path, body, { host, bootstrapPort }) {
      const place = { host, port: bootstrapPort };
      if (body.length > LARGE_BYTES) {
        return thread
          .ask('bootstrap', body, path, place)
          .then((made) =>
            'code' in made
              ? new RouterError(made.code, made.message)
              : meetingOf({ bytes: bufferOf(made.bytes), asksForLogprobs: made.asksForLogprobs }, thread),
          );
      }
      const forBoth = addBootstrap(path, body, place);
      return forBoth instanceof RouterError ? forBoth : meetingOf(forBoth, thread);
    },
  };
}

function meetingOf({ bytes, asksForLogprobs }: PairBody, thread: BodyThread): Meeting {
  const handover = (lists: PackedLists): Handover => ({ decode: null, merging: logprobsMerging(lists, thread) });
  const read = (answer: Buffer, isEventStream: boolean): Handover | Promise<Handover> =>
    answer.length > LARGE_BYTES
      ? thread.ask('packedLists', answer, isEventStream).then(handover)
      : handover(packedLists(answer, isEventStream));
  return { prefill: bytes, decode: bytes, read: asksForLogprobs ? read : null };
}
