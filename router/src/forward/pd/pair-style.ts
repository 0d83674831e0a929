import type { PairKind } from '../../config/pairs.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import type { BodyThread } from '../body-calls.ts';
import { RouterError } from '../../kit/errors.ts';
import { after } from '../../threads/worker-thread.ts';
import { type Aborted, type Handover, type PairStyle, type Planned, noObject } from './pair-plan.ts';
import { randomUUID } from 'node:crypto';
import type { Worker } from '../../fleet/worker.ts';
import { promptsMerge } from './sglang-answers.ts';
import { answerMergeOf } from './vllm-answers.ts';
import { ask, askJson } from '../../engines/ask.ts';

/** @returns null: engines are not paired */
export function pairStyleOf(
  kind: PairKind | null,
  options: VllmPairOptions,
  clock: CoarseClock,
  thread: BodyThread,
): PairStyle | null {
  if (kind === 'nixl') return nixlPairs(options, thread);
  if (kind === 'mooncake') return mooncakePairs(options, new MooncakeEngines(clock), thread);
  return kind === null ? null : sglangPairs(thread);
}

/** SGLang: both engines get the same bytes at once, with the address of the prefill engine's bootstrap server and a room number. */
function sglangPairs(thread: BodyThread): PairStyle {
  const reads = (count: number) => (answer: Buffer, isEventStream: boolean) =>
    after(thread.run('packedPrompts', answer, isEventStream, count), (prompts): Handover => ({
      decode: null,
      answerMerge: promptsMerge(prompts, thread),
    }));
  return {
    plan: (path, body, { host, bootstrapPort }) =>
      after(thread.run('bootstrap', path, body, { host, port: bootstrapPort }), (made): Planned => {
        if ('code' in made) return new RouterError(made.code, made.message);
        return { prefill: made.bytes, decode: made.bytes, read: made.asksOfPrompt ? reads(made.count) : null };
      }),
  };
}

/** Read for every request, because a reload changes it. */
interface VllmPairOptions {
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

const abortOf = (path: string, isStream: boolean, answer: Buffer, thread: BodyThread): Aborted | Promise<Aborted> =>
  isStream
    ? after(thread.run('abortedStream', path, answer), (aborted) => ({ aborted, isStream }))
    : { aborted: answer, isStream };

/** The prefill engine first; its response says where the KV cache is, and the decode engine gets that. */
function nixlPairs(options: VllmPairOptions, thread: BodyThread): PairStyle {
  return {
    isForOne: forOne(options, thread),
    plan: (path, given) =>
      after(thread.run('prefill', path, given, KEEP), ({ prefill, body, isStream }): Planned => {
        if (prefill === null) return noObject();
        const read = (answer: Buffer) =>
          after(thread.run('readPrefill', answer), ({ params, known, aborted }) => {
            if (aborted !== null) return abortOf(path, isStream, aborted, thread);
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
function mooncakePairs(options: VllmPairOptions, engines: MooncakeEngines, thread: BodyThread): PairStyle {
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
    return after(thread.run('both', path, body, params), ({ prefill, decode, isStream }) => {
      if (prefill === null || decode === null) return noObject();
      const read = (answer: Buffer) =>
        after(thread.run('readPrefill', answer), ({ known, aborted }): Handover | Aborted | Promise<Aborted> => {
          if (aborted !== null) return abortOf(path, isStream, aborted, thread);
          return { decode: null, answerMerge: answerMergeOf(known, thread) };
        });
      return { prefill, decode, read };
    });
  };
  return {
    isForOne: forOne(options, thread),
    plan: (path, body, prefillWorker) =>
      after(engines.idOf(prefillWorker), (engineId) => plan(path, body, prefillWorker, engineId)),
  };
}

/** The default port of the bootstrap server of vLLM's MooncakeConnector (0.32.0). */
const DEFAULT_PORT = 8_998;
/** An engine has a new id after a restart, which takes longer than this. */
const TRUSTED_MS = 5_000;
const PATIENCE_MS = 3_000;

/** The ids of prefill engines, which their bootstrap servers report and decode engines need. An engine has a new one after each start. */
class MooncakeEngines {
  readonly #clock: CoarseClock;
  readonly #known = new WeakMap<Worker, { readonly id: string; readonly atMs: number }>();
  readonly #asked = new WeakMap<Worker, Promise<string | null>>();

  constructor(clock: CoarseClock) {
    this.#clock = clock;
  }

  addressOf({ host, bootstrapPort }: Worker): string {
    return `http://${host.includes(':') ? `[${host}]` : host}:${bootstrapPort ?? DEFAULT_PORT}`;
  }

  /** Synchronously while it is known; null: the bootstrap server does not report it. */
  idOf(worker: Worker): string | Promise<string | null> {
    const known = this.#known.get(worker);
    if (known !== undefined && this.#clock.nowMs - known.atMs < TRUSTED_MS) return known.id;
    let asked = this.#asked.get(worker);
    if (asked === undefined) {
      asked = this.#ask(worker).finally(() => this.#asked.delete(worker));
      this.#asked.set(worker, asked);
    }
    return asked;
  }

  async #ask(worker: Worker): Promise<string | null> {
    const { host, bootstrapPort, rank } = worker;
    const { lookup } = worker.pool.endpoint;
    const endpoint = { host, port: bootstrapPort ?? DEFAULT_PORT, isTls: false, tls: null, lookup };
    // The id of each data-parallel rank: {"0": {"engine_id": …}}.
    const ranks = await askJson((path) => ask(endpoint, path, PATIENCE_MS), '/query');
    const entries = Object.values(ranks ?? {});
    // The rank that an engine chooses for a request is not known in advance.
    const entry = rank === null ? (entries.length === 1 ? entries[0] : undefined) : ranks?.[rank];
    const id = (entry as { engine_id?: unknown } | undefined)?.engine_id;
    if (typeof id !== 'string') return null;
    this.#known.set(worker, { id, atMs: this.#clock.nowMs });
    return id;
  }
}
