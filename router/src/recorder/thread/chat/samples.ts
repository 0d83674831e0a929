import { type TensorHead, safetensorsHead } from '../export/safetensors-head.ts';
import { type Trajectory, isExact } from '../export/trajectory.ts';
import { asNumbers } from '../logprobs.ts';
import { type Tokenizer, textOfIds } from '../tokens/tokenizer.ts';
import type { ExpertsReader } from './experts-rows.ts';

/** What a caller says of the samples that it wants. */
export interface SamplesWish {
  /** Longer ones are cut there; 0: none are. */
  readonly maxTokens: number;
  /** Goes into the metadata of each sample; its `reward` is the reward of each. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** What samples are made with. */
export interface SamplesParts {
  readonly tokenizer: Tokenizer;
  /** null: no routed experts are kept. */
  readonly experts: ExpertsReader | null;
  /** Of the session as a whole. */
  readonly sessionMetadata: object;
  /** Whether the trajectory that ends with this turn is one. */
  readonly isWanted: (end: string) => boolean;
  /** What was sampled has mask 1 in the first sample with it only. */
  readonly isTrainedOnce: boolean;
}

interface Tensor extends Omit<TensorHead, 'bytes'> {
  readonly data: Uint8Array;
}

const WIDTHS: Readonly<Record<TensorHead['dtype'], number>> = { I64: 8, F64: 8, I32: 4, U8: 1 };
/** More is no answer for a client that takes it as a whole: an export streams. */
const MAX_BYTES = 1_073_741_824;

/** `Sample.Status` of miles by the end of a generation. */
const statuses: ReadonlyMap<string | null, string> = new Map([
  ['length', 'truncated'],
  ['abort', 'aborted'],
  [null, 'aborted'],
]);

/**
 * The samples of a session as miles' session server hands them out (its codec, 2026-08): a safetensors file with tensors
 * `tokens.N`, `loss_mask.N`, `rollout_log_probs.N` and, where they are kept, `rollout_routed_experts.N` and `rollout_indexer_topk.N` for each trajectory, and
 * what is no tensor as JSON in `_samples_meta`. Mask and logprobs are of the response: all tokens from the first sampled one on. A
 * logprob that is not known is 0 there, and its position is in `metadata.unknown_logprobs`.
 *
 * @returns a text: why there can't be any
 */
export async function encodeSamples(
  trajectories: AsyncIterable<Trajectory>,
  { maxTokens, metadata }: SamplesWish,
  { tokenizer, experts, sessionMetadata, isWanted, isTrainedOnce }: SamplesParts,
): Promise<Uint8Array | string> {
  const tensors: Tensor[] = [];
  let size = 0;
  const add = (
    name: string,
    dtype: TensorHead['dtype'],
    values: ArrayBufferView & { length: number },
    shape = [values.length],
  ): void => {
    tensors.push({ name, dtype, shape, data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) });
    size += values.byteLength;
  };
  const samples: object[] = [];
  const trained = new Set<string>();
  let seen = 0;
  for await (const trajectory of trajectories) {
    const { ids, logprobs, mask, versions, turns } = trajectory;
    // What is known as text alone is no sample.
    if (!isWanted(trajectory.id) || !isExact(trajectory)) continue;
    seen++;
    const n = samples.length;
    const length = maxTokens > 0 ? Math.min(maxTokens, ids.length) : ids.length;
    const first = mask.indexOf(1);
    // Nothing that was sampled is left of it.
    if (length < ids.length && first >= length) continue;
    const start = first < 0 ? length : first;
    if (isTrainedOnce) maskOut(trajectory, trained);
    add(`tokens.${n}`, 'I64', BigInt64Array.from(ids.subarray(0, length), BigInt));
    const { numbers, unknown } = asNumbers(logprobs.subarray(start, length));
    add(`rollout_log_probs.${n}`, 'F64', numbers);
    add(`loss_mask.${n}`, 'U8', mask.slice(start, length));
    const rows = (await experts?.read(trajectory, length)) ?? null;
    if (rows !== null) add(`rollout_routed_experts.${n}`, 'I32', rows.numbers, [...rows.shape]);
    const indexer = (await experts?.readIndexer(trajectory, length)) ?? null;
    if (indexer !== null) add(`rollout_indexer_topk.${n}`, 'I32', indexer.numbers, [...indexer.shape]);
    if (size > MAX_BYTES) return `They have more than ${MAX_BYTES} bytes: export the session instead.`;
    // Of turns whose engine reports both; 0 of 0 is not known.
    const counted = turns.filter(({ cachedTokens, promptTokens }) => cachedTokens !== null && promptTokens !== null);
    const cached = counted.reduce((sum, turn) => sum + turn.cachedTokens!, 0);
    const prompts = counted.reduce((sum, turn) => sum + turn.promptTokens!, 0);
    const spans = versions
      .filter(({ from }) => from < length)
      .map(({ from, to, ...named }) => ({ ...named, abs_start: from, abs_end: Math.min(to, length) }));
    samples.push({
      response: await textOfIds(tokenizer, ids.subarray(start, length)),
      response_length: length - start,
      status: length < ids.length ? 'truncated' : (statuses.get(turns.at(-1)!.finishReason) ?? 'completed'),
      // One for each turn, as its engine named it at its end.
      weight_versions: turns.flatMap(({ versions: own }) => own.slice(-1).map(({ version }) => version)),
      spec_info: {},
      prefix_cache_info: { cached_tokens: cached, total_prompt_tokens: prompts },
      metadata: {
        ...metadata,
        turns: turns.map(({ id, drift }) => ({ id, drift })),
        weight_version_spans: spans,
        unknown_logprobs: unknown,
      },
      reward: metadata['reward'] ?? trajectory.outcome?.reward ?? null,
      nulls: [
        ...(rows === null ? ['rollout_routed_experts'] : []),
        ...(indexer === null ? ['rollout_indexer_topk'] : []),
      ],
    });
  }
  const reason = samples.length > 0 ? null : seen > 0 ? 'all_truncated' : 'no_records';
  const meta = { samples, session_metadata: sessionMetadata, empty_reason: reason };
  add('_samples_meta', 'U8', Buffer.from(JSON.stringify(meta)));
  return fileOf(tensors);
}

/** Takes what was sampled in these turns out of the mask, and adds the others to them. */
function maskOut({ ids, mask, turns }: Trajectory, trained: Set<string>): void {
  let end = ids.length;
  for (const { id, keeps, promptTokens, outputTokens } of turns.toReversed()) {
    const from = promptTokens!;
    if (trained.has(id)) mask.fill(0, from, Math.max(from, Math.min(end, from + outputTokens!)));
    trained.add(id);
    end = Math.min(end, keeps);
  }
}

function fileOf(tensors: readonly Tensor[]): Uint8Array {
  // Wide types first, so that each tensor is aligned.
  const ordered = tensors.toSorted((a, b) => WIDTHS[b.dtype] - WIDTHS[a.dtype]);
  const head = safetensorsHead(ordered.map(({ data, ...tensor }) => ({ ...tensor, bytes: data.length })));
  return Buffer.concat([head, ...ordered.map(({ data }) => data)]);
}
