import { RouterError } from '../../kit/errors.ts';
import { type BodyThread, bufferOf } from '../body-thread.ts';
import { type PairBody, addBootstrap } from './bootstrap.ts';
import { logprobsMerging } from './logprobs.ts';
import { LARGE_BYTES, type Meeting, type PairStyle } from './meeting.ts';

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
              : meetingOf({ bytes: bufferOf(made.bytes), asksForLogprobs: made.asksForLogprobs }),
          );
      }
      const forBoth = addBootstrap(path, body, place);
      return forBoth instanceof RouterError ? forBoth : meetingOf(forBoth);
    },
  };
}

function meetingOf({ bytes, asksForLogprobs }: PairBody): Meeting {
  const read = (answer: Buffer, isEventStream: boolean) => ({
    decode: null,
    merging: logprobsMerging(answer, isEventStream),
  });
  return { prefill: bytes, decode: bytes, read: asksForLogprobs ? read : null };
}
