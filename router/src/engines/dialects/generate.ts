import type { Answer, Delta, PromptToken, TopTokens, VersionSpan, WrittenSpan } from '../../generation/delta.ts';
import { readSpans, textOf, versionOf, writtenSpansOf } from '../../generation/delta.ts';
import type { Dialect } from '../../generation/dialect.ts';
import { Json } from '../../kit/json-members.ts';

/** A token with its logprob. */
type Triple = readonly [logprob: number | null, id: number, text?: string | null];

/** The tokens that sparse attention looked at. */
export interface Indexer {
  readonly value: unknown;
  /** null: not returned. */
  readonly layers: number | null;
}

/** A response of SGLang's `/generate` (0.5.23), or an event of its stream; in a chat, a choice with `meta_info`, which has the same members. */
export class GenerateDelta implements Delta {
  readonly index: number;
  readonly finish: string | null;
  readonly stop: string | number | null;
  readonly count: number | null;
  readonly text: Delta['text'];
  readonly textBytes: number | null;
  readonly endsInSpace: boolean;
  /** What the engine says beside the tokens: its `meta_info`. */
  readonly info: Json;
  readonly #answer: Json;

  /** @param position of the response in its list, which counts where it has no index of its own */
  constructor(answer: Json, info: Json, position = 0) {
    this.#answer = answer;
    this.info = info;
    this.index = indexOf(answer) ?? position;
    const reason = info.get('finish_reason');
    this.finish = reason?.get('type')?.text() || null;
    this.stop = stopOf(reason?.get('matched') ?? null);
    this.count = info.get('completion_tokens')?.number() ?? null;
    const text = textOf(answer.get('text'));
    this.text = text.text;
    this.textBytes = text.textBytes;
    this.endsInSpace = text.endsInSpace;
  }

  get version(): string | null {
    return versionOf(this.info.get('weight_version'));
  }

  /**
   * An abort in the engine's queue, where requests wait again that lost their memory. It tells nothing of the prompt, and the last event of an
   * incremental stream (in releases before 0.5.23 of any stream) has all text and logprobs, but only the last id.
   */
  get isQueueAbort(): boolean {
    return this.finish === 'abort' && this.promptTokens === null;
  }

  /** Releases before 0.5 have ids only beside the logprobs. */
  ids(): readonly number[] | null {
    const ids = this.#answer.get('output_ids')?.valueIfAny() as readonly number[] | undefined;
    if (this.isQueueAbort && this.count !== ids?.length && this.count === this.triples()?.length)
      return this.triples()!.map(([, id]) => id);
    return ids ?? this.triples()?.map(([, id]) => id) ?? null;
  }

  idCount(): number {
    return (this.#answer.get('output_ids') ?? this.info.get('output_token_logprobs'))?.count() ?? 0;
  }

  get hasLogprobs(): boolean {
    return this.info.get('output_token_logprobs') !== null;
  }

  /** The sampled tokens with their logprobs; null: not returned. */
  triples(): readonly Triple[] | null {
    return triplesOf(this.info, 'output_token_logprobs');
  }

  logprobs(): readonly (number | null)[] | null {
    return this.triples()?.map(([logprob]) => logprob) ?? null;
  }

  top(): readonly TopTokens[] | null {
    return topOf(this.info, 'output_top_logprobs');
  }

  promptIds(): readonly number[] | null {
    return triplesOf(this.info, 'input_token_logprobs')?.map(([, id]) => id) ?? null;
  }

  spans(): readonly VersionSpan[] {
    return readSpans(this.writtenSpans());
  }

  writtenSpans(): readonly WrittenSpan[] {
    return writtenSpansOf(this.info.get('weight_versions'));
  }

  experts(): unknown {
    return this.info.get('routed_experts')?.valueIfAny() ?? null;
  }

  /** What sparse attention looked at, and in how many layers; null: not returned. */
  get indexer(): Indexer | null {
    return indexerOf(this.info.get('indexer_topk'), this.info);
  }

  get promptTokens(): number | null {
    return this.info.get('prompt_tokens')?.number() ?? null;
  }

  get cachedTokens(): number | null {
    return this.info.get('cached_tokens')?.number() ?? null;
  }

  /** With --enable-metrics (0.5.19); null: not returned. */
  get queuedSecs(): number | null {
    return this.info.get('queue_time')?.number() ?? null;
  }

  get failure(): NonNullable<Delta['failure']> {
    const reason = this.info.get('finish_reason');
    return { message: reason?.get('message')?.text() ?? '', status: reason?.get('status_code')?.number() ?? null };
  }
}

/** @returns null: it is no response of this API */
export function readGenerate(
  bytes: Buffer,
  start: number,
): (Answer & { readonly deltas: readonly GenerateDelta[] }) | null {
  const list = Json.list(bytes, start);
  const answers = list?.items() ?? [Json.object(bytes, start)];
  const deltas = answers.flatMap((answer, position) => {
    const info = answer?.get('meta_info') ?? null;
    return info === null ? [] : [new GenerateDelta(answer!, info, position)];
  });
  const error = list !== null || !answers[0] ? null : errorOf(answers[0]);
  if (deltas.length === 0 && list === null && error === null) return null;
  return {
    error,
    deltas: error === null ? deltas : [],
    cachedTokens: deltas[0]?.cachedTokens ?? null,
    promptLogprobs: () => promptLogprobsOf(deltas[0]?.info ?? null),
  };
}

/** SGLang's own API (0.5.23). In joined responses, members that the router does not know stay those of the last part. */
export const generate: Dialect = {
  name: 'generate',
  path: '/generate',
  request: {
    ids: 'input_ids',
    text: 'text',
    params: 'sampling_params',
    limit: 'max_new_tokens',
    least: 'min_new_tokens',
    defaultLimit: 128,
    asksForIds: null,
    // The scores of the prompt come with the first part; those of sampled tokens would be among them later.
    promptScores: { logprob_start_len: '-1' },
  },
  joins: {
    text: 'text',
    output_ids: 'list',
    meta_info: {
      id: 'first',
      finish_reason: 'finish',
      prompt_tokens: 'prompt',
      completion_tokens: 'count',
      cached_tokens: 'cached',
      cached_tokens_details: 'first',
      input_token_logprobs: 'first',
      input_top_logprobs: 'first',
      input_token_ids_logprobs: 'first',
      output_token_logprobs: 'list',
      output_token_logprobs_length: 'count',
      output_top_logprobs: 'list',
      output_token_ids_logprobs: 'list',
      output_token_sampling_mask: 'list',
      output_token_sampling_logprobs: 'list',
      output_token_sampling_mask_length: 'count',
      weight_versions: 'spans',
      routed_experts: 'experts',
      indexer_topk: 'experts',
    },
  },
  read: readGenerate,
};

/** The index of a sample or a choice, which may be a string of digits; null: it has none. */
export function indexOf(json: Json): number | null {
  const own = json.get('index');
  if (own?.isText !== true) return own?.number() ?? null;
  const text = own.text() ?? '';
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}

/** @returns the status of an engine's error; 0: it has none. null: no error */
export function errorOf(answer: Json): number | null {
  const error = answer.get('error');
  return error === null ? null : (error.get('code')?.number() ?? 0);
}

export const indexerOf = (value: Json | null, info: Json | null): Indexer | null =>
  value === null ? null : { value: value.valueIfAny(), layers: info?.get('indexer_topk_num_layers')?.number() ?? null };

/** The stop string, or the id of the stop token, that ended a choice. */
export const stopOf = (json: Json | null): string | number | null => json?.text() ?? json?.number() ?? null;

const triplesOf = (info: Json, name: string): readonly Triple[] | null =>
  (info.get(name)?.valueIfAny() as readonly Triple[] | undefined) ?? null;

/** A row for each position: the likeliest tokens there. */
function topOf(info: Json, name: string): readonly TopTokens[] | null {
  const rows = info.get(name)?.valueIfAny() as readonly (readonly Triple[] | null)[] | undefined;
  return rows?.map((row) => (row ?? []).map(tokenOf)) ?? null;
}

const tokenOf = ([logprob, id, text = null]: Triple): TopTokens[number] => [logprob, id, text];

function promptLogprobsOf(info: Json | null): readonly PromptToken[] | null {
  const own = info === null ? null : triplesOf(info, 'input_token_logprobs');
  const top = (info?.get('input_top_logprobs')?.valueIfAny() ?? []) as readonly (readonly Triple[] | null)[];
  return own?.map(([logprob], i) => ({ logprob, top: top[i]?.map(tokenOf) ?? null })) ?? null;
}

/** What SGLang says of sampled tokens, in its words. @param finish '': the response is truncated */
export const metaInfo = (finish: string, ids: Int32Array, logprobs: ArrayLike<number>): object => ({
  finish_reason: finish === '' ? null : { type: finish },
  completion_tokens: ids.length,
  output_token_logprobs: Array.from(ids, (token, i) => [logprobs[i], token, null]),
});

/** A request for the ids of a text's tokens, which come beside their logprobs. */
export const promptIdsRequest = (text: string): object => ({
  text,
  sampling_params: { max_new_tokens: 0 },
  return_logprob: true,
  logprob_start_len: 0,
});

/** Releases before this one name only the version at the end of an answer, not the spans. */
const [MAJOR, MINOR, PATCH] = [0, 5, 19];

/** Whether an engine names versions token by token. @param release null: the engine does not tell it, and counts as a new one */
export function namesSpans(release: string | null): boolean {
  const [, major = 1, minor = 0, patch = 0] = /^(\d+)\.(\d+)\.(\d+)/.exec(release ?? '')?.map(Number) ?? [];
  if (major !== MAJOR) return major > MAJOR;
  return minor === MINOR ? patch >= PATCH : minor > MINOR;
}
