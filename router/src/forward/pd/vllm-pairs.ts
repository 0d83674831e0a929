import { randomUUID } from 'node:crypto';
import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import { bufferOf } from '../../kit/bytes.ts';
import type { BodyThread } from '../body-thread.ts';
import { isForOne } from './for-one.ts';
import { LARGE_BYTES, type Handover, type Met, type PairStyle } from './meeting.ts';
import type { MooncakeEngines } from './mooncake-engines.ts';
import { type PrefillSaid, mergingOf, readPrefill } from './vllm-answers.ts';
import { decodeBody, prefillBody } from './vllm-bodies.ts';

/** What the ways of vLLM's pairs depend on; read for every request. */
export interface VllmPairOptions {
  /** A decode engine reads shorter prompts itself; 0: every prompt goes to a prefill engine. */
  readonly minPromptTokens: number;
}

/** The words by which vLLM's NixlConnector (0.32.0) keeps the KV of a request for another engine. */
const KEEP =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

const noObject = (): RouterError =>
  new RouterError('bad_request', 'A prefill/decode pair needs a JSON object as the request body.');

const bufferOrNull = (bytes: Uint8Array | null): Buffer | null => (bytes === null ? null : bufferOf(bytes));

/** What `then` makes of a prefill engine's answer. */
const reading = <T>(answer: Buffer, thread: BodyThread, then: (said: PrefillSaid) => T | Promise<T>): T | Promise<T> =>
  answer.length > LARGE_BYTES ? thread.ask('readPrefill', answer).then(then) : then(readPrefill(answer));

const forOne =
  (options: VllmPairOptions, thread: BodyThread) =>
  (path: string, body: Buffer): boolean | Promise<boolean> =>
    body.length > LARGE_BYTES
      ? thread.ask('isForOne', body, path, options.minPromptTokens)
      : isForOne(path, body, options.minPromptTokens);

/** The prefill engine first; where its KV is, as it says it, leads the decode engine there. */
export function nixlPairs(options: VllmPairOptions, thread: BodyThread): PairStyle {
  const meeting = (path: string, body: Buffer, prefill: Buffer | null): Met => {
    if (prefill === null) return noObject();
    return {
      prefill,
      decode: null,
      read(answer) {
        return reading(answer, thread, ({ params, known }) => {
          if (params === null) return null;
          const merging = mergingOf(known, thread);
          const handover = (decode: Buffer | null): Handover | null => (decode === null ? null : { decode, merging });
          if (body.length <= LARGE_BYTES) return handover(decodeBody(path, body, bufferOf(params)));
          return thread.ask('decode', body, path, params).then((decode) => handover(bufferOrNull(decode)));
        });
      },
    };
  };
  return {
    isForOne: forOne(options, thread),
    meet(path, body) {
      if (body.length <= LARGE_BYTES) return meeting(path, body, prefillBody(path, body, KEEP));
      return thread
        .ask('prefill', body, path, KEEP)
        .then((made) => meeting(path, bufferOf(made.body), bufferOrNull(made.prefill)));
    },
  };
}

/** Both at once: the decode engine asks for a transfer by its name, and waits until the prefill engine has it. */
export function mooncakePairs(options: VllmPairOptions, engines: MooncakeEngines, thread: BodyThread): PairStyle {
  const meeting = (prefill: Buffer | null, decode: Buffer | null): Met => {
    if (prefill === null || decode === null) return noObject();
    const handover = ({ known }: PrefillSaid): Handover => ({ decode: null, merging: mergingOf(known, thread) });
    return { prefill, decode, read: (answer) => reading(answer, thread, handover) };
  };
  const meet = (path: string, body: Buffer, prefillWorker: Worker, engineId: string | null): Met | Promise<Met> => {
    if (engineId === null) return 'its bootstrap server does not say which engine it is';
    const transfer = `"transfer_id":"xfer-${randomUUID()}"`;
    const where = `"remote_bootstrap_addr":${JSON.stringify(engines.addressOf(prefillWorker))}`;
    const who = `"remote_engine_id":${JSON.stringify(engineId)}`;
    const params = {
      prefill: `{"do_remote_decode":true,"do_remote_prefill":false,${transfer}}`,
      decode: `{"do_remote_decode":false,"do_remote_prefill":true,${transfer},${where},${who}}`,
    };
    if (body.length <= LARGE_BYTES) {
      return meeting(prefillBody(path, body, params.prefill), decodeBody(path, body, params.decode));
    }
    return thread
      .ask('both', body, path, params)
      .then(({ prefill, decode }) => meeting(bufferOrNull(prefill), bufferOrNull(decode)));
  };
  return {
    isForOne: forOne(options, thread),
    meet(path, body, prefillWorker) {
      const engineId = engines.idOf(prefillWorker);
      return typeof engineId === 'string'
        ? meet(path, body, prefillWorker, engineId)
        : engineId.then((id) => meet(path, body, prefillWorker, id));
    },
  };
}
