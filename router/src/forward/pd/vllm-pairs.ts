import { randomUUID } from 'node:crypto';
import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import { isForOne } from './for-one.ts';
import type { Met, PairStyle } from './meeting.ts';
import type { MooncakeEngines } from './mooncake-engines.ts';
import { readPrefill } from './vllm-answers.ts';
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
  new RouterError('bad_request', 'A pair of engines needs a JSON object: the body is none.');

/** The prefill engine first; where its KV is, as it says it, leads the decode engine there. */
export function nixlPairs(options: VllmPairOptions): PairStyle {
  return {
    isForOne: (path, body) => isForOne(path, body, options.minPromptTokens),
    meet(path, body) {
      const prefill = prefillBody(path, body, KEEP);
      if (prefill === null) return noObject();
      return {
        prefill,
        decode: null,
        read(answer) {
          const { params, merging } = readPrefill(answer);
          const decode = params === null ? null : decodeBody(path, body, params);
          return decode === null ? null : { decode, merging };
        },
      };
    },
  };
}

/** Both at once: the decode engine asks for a transfer by its name, and waits until the prefill engine has it. */
export function mooncakePairs(options: VllmPairOptions, engines: MooncakeEngines): PairStyle {
  const meet = (path: string, body: Buffer, prefillWorker: Worker, engineId: string | null): Met => {
    if (engineId === null) return 'its bootstrap server does not say which engine it is';
    const transfer = `"transfer_id":"xfer-${randomUUID()}"`;
    const prefill = prefillBody(path, body, `{"do_remote_decode":true,"do_remote_prefill":false,${transfer}}`);
    const where = `"remote_bootstrap_addr":${JSON.stringify(engines.addressOf(prefillWorker))}`;
    const who = `"remote_engine_id":${JSON.stringify(engineId)}`;
    const params = `{"do_remote_decode":false,"do_remote_prefill":true,${transfer},${where},${who}}`;
    const decode = decodeBody(path, body, params);
    if (prefill === null || decode === null) return noObject();
    return { prefill, decode, read: (answer) => ({ decode: null, merging: readPrefill(answer).merging }) };
  };
  return {
    isForOne: (path, body) => isForOne(path, body, options.minPromptTokens),
    meet(path, body, prefillWorker) {
      const engineId = engines.idOf(prefillWorker);
      return typeof engineId === 'string'
        ? meet(path, body, prefillWorker, engineId)
        : engineId.then((id) => meet(path, body, prefillWorker, id));
    },
  };
}
