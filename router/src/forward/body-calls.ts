import { type BodyFacts, type BodyQuestion, BodyScan } from '../classify/body-scan.ts';
import { readPreviousResponse } from '../classify/previous-response.ts';
import { abortedStream } from '../engines/dialects/pairs.ts';
import { withModel, withNamespace, withRank } from '../engines/dialects/request-fields.ts';
import { type ErrorCode, RouterError } from '../kit/errors.ts';
import { LARGE_SCAN_BYTES } from '../threads/sizes.ts';
import { WorkerThread } from '../threads/worker-thread.ts';
import { type BootstrapServer, type PairBody, addBootstrap } from './pd/bootstrap.ts';
import { isForOne } from './pd/for-one.ts';
import { eventWithPrompts, packedPrompts, withPrompts } from './pd/sglang-answers.ts';
import { eventWithKnown, readPrefill, withKnown } from './pd/vllm-answers.ts';
import { asksForStream, decodeBody, prefillBody } from './pd/vllm-bodies.ts';

/** A RouterError in a form that can be sent between threads. */
export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
}

const bodyScan = new BodyScan();

/** The calls that read or change a whole body. Arguments and answers are plain data: large bodies are read on a thread. */
export const bodyCalls = {
  scan: (body: Buffer, question: BodyQuestion): BodyFacts => bodyScan.scan(body, question),
  previousResponse: readPreviousResponse,
  withRank,
  withNamespace,
  withModel,
  isForOne,

  bootstrap(path: string, body: Buffer, server: BootstrapServer): Refusal | PairBody {
    const made = addBootstrap(path, body, server);
    return made instanceof RouterError ? { code: made.code, message: made.message } : made;
  },

  /** The body is in the answer, because the decode engine's body is made of it later. */
  prefill: (
    path: string,
    body: Buffer,
    params: string,
  ): { prefill: Buffer | null; body: Buffer; isStream: boolean } => ({
    prefill: prefillBody(path, body, params),
    body,
    isStream: asksForStream(body),
  }),

  decode: decodeBody,

  both: (
    path: string,
    body: Buffer,
    params: { readonly prefill: string; readonly decode: string },
  ): { prefill: Buffer | null; decode: Buffer | null; isStream: boolean } => ({
    prefill: prefillBody(path, body, params.prefill),
    decode: decodeBody(path, body, params.decode),
    isStream: asksForStream(body),
  }),

  // Of answers.
  packedPrompts,
  withPrompts,
  eventWithPrompts,
  readPrefill,
  abortedStream,
  withKnown,
  eventWithKnown,
} as const;

export type BodyThread = WorkerThread<typeof bodyCalls>;

/** Reads and changes bodies: large ones on a thread. */
export const startBodyThread = (): BodyThread =>
  new WorkerThread('forward/bodies-in-thread', {
    here: bodyCalls,
    limits: {
      scan: LARGE_SCAN_BYTES,
      previousResponse: LARGE_SCAN_BYTES,
      withRank: LARGE_SCAN_BYTES,
      withNamespace: LARGE_SCAN_BYTES,
      withModel: LARGE_SCAN_BYTES,
    },
  });
