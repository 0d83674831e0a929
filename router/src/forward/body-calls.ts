import { type ErrorCode, RouterError } from '../kit/errors.ts';
import { bufferOf } from '../kit/bytes.ts';
import { type MeetingPlace, addBootstrap } from './pd/bootstrap.ts';
import { isForOne } from './pd/for-one.ts';
import { eventWithLists, packedLists, withLists } from './pd/logprobs.ts';
import { eventWithKnown, readPrefill, withKnown } from './pd/vllm-answers.ts';
import { decodeBody, prefillBody } from './pd/vllm-bodies.ts';
import { withRank } from './rank-field.ts';

/** Goes from thread to thread, which a RouterError can't. */
export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
}

/** What can be asked of a whole body; each is right here and in the thread (`BodyThread`) alike. */
export const bodyCalls = {
  rank: (body: Buffer, rank: number): Uint8Array => withRank(body, rank),

  isForOne: (body: Buffer, path: string, minTokens: number): boolean => isForOne(path, body, minTokens),

  bootstrap(
    body: Buffer,
    path: string,
    place: MeetingPlace,
  ): Refusal | { bytes: Uint8Array; asksForLogprobs: boolean } {
    const made = addBootstrap(path, body, place);
    return made instanceof RouterError ? { code: made.code, message: made.message } : made;
  },

  /** The body comes back: the decode engine's is made of it. */
  prefill: (body: Buffer, path: string, params: string): { prefill: Uint8Array | null; body: Uint8Array } => ({
    prefill: prefillBody(path, body, params),
    body,
  }),

  decode: (body: Buffer, path: string, params: Uint8Array): Uint8Array | null =>
    decodeBody(path, body, bufferOf(params)),

  both: (
    body: Buffer,
    path: string,
    params: { readonly prefill: string; readonly decode: string },
  ): { prefill: Uint8Array | null; decode: Uint8Array | null } => ({
    prefill: prefillBody(path, body, params.prefill),
    decode: decodeBody(path, body, params.decode),
  }),

  // Of answers.
  packedLists,
  withLists,
  eventWithLists,
  readPrefill,
  withKnown,
  eventWithKnown,
} as const;

export type BodyCalls = typeof bodyCalls;
