import { randomUUID } from 'node:crypto';
import type { Worker } from '../../fleet/worker.ts';
import { after } from '../../threads/worker-thread.ts';
import type { BodyThread } from '../body-calls.ts';
import { type Handover, type Planned, type PairStyle, noObject } from './pair-plan.ts';
import type { MooncakeEngines } from './mooncake-engines.ts';
import { answerMergeOf } from './vllm-answers.ts';

/** Read for every request, because a reload changes it. */
export interface VllmPairOptions {
  /** A decode engine alone serves shorter prompts; 0: every prompt goes to a prefill engine. */
  readonly minPromptTokens: number;
}

/** With these parameters vLLM's NixlConnector (0.32.0) keeps the KV cache of a request for another engine. */
const KEEP =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

const forOne =
  (options: VllmPairOptions, thread: BodyThread) =>
  (path: string, body: Buffer): boolean | Promise<boolean> =>
    thread.run('isForOne', path, body, options.minPromptTokens);

/** The prefill engine first; its response says where the KV cache is, and the decode engine gets that. */
export function nixlPairs(options: VllmPairOptions, thread: BodyThread): PairStyle {
  return {
    isForOne: forOne(options, thread),
    plan: (path, given) =>
      after(thread.run('prefill', path, given, KEEP), ({ prefill, body }): Planned => {
        if (prefill === null) return noObject();
        const read = (answer: Buffer) =>
          after(thread.run('readPrefill', answer), ({ params, known }) => {
            if (params === null) return null;
            const answerMerge = answerMergeOf(known, thread);
            const handover = (decode: Buffer | null): Handover | null =>
              decode === null ? null : { decode, answerMerge };
            return after(thread.run('decode', path, body, params), handover);
          });
        return { prefill, decode: null, read };
      }),
  };
}

/** Both engines at once: the decode engine asks for a transfer by its id, and waits until the prefill engine has computed it. */
export function mooncakePairs(options: VllmPairOptions, engines: MooncakeEngines, thread: BodyThread): PairStyle {
  const read = (answer: Buffer) =>
    after(thread.run('readPrefill', answer), ({ known }): Handover => ({
      decode: null,
      answerMerge: answerMergeOf(known, thread),
    }));
  const plan = (
    path: string,
    body: Buffer,
    prefillWorker: Worker,
    engineId: string | null,
  ): Planned | Promise<Planned> => {
    if (engineId === null) return 'its bootstrap server does not say which engine it is';
    const transfer = `"transfer_id":"xfer-${randomUUID()}"`;
    const where = `"remote_bootstrap_addr":${JSON.stringify(engines.addressOf(prefillWorker))}`;
    const who = `"remote_engine_id":${JSON.stringify(engineId)}`;
    const params = {
      prefill: `{"do_remote_decode":true,"do_remote_prefill":false,${transfer}}`,
      decode: `{"do_remote_decode":false,"do_remote_prefill":true,${transfer},${where},${who}}`,
    };
    return after(thread.run('both', path, body, params), ({ prefill, decode }) =>
      prefill === null || decode === null ? noObject() : { prefill, decode, read },
    );
  };
  return {
    isForOne: forOne(options, thread),
    plan: (path, body, prefillWorker) =>
      after(engines.idOf(prefillWorker), (engineId) => plan(path, body, prefillWorker, engineId)),
  };
}
