import type { Trajectory } from '../export/trajectory.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { textOfIds } from './tokens-text.ts';

type Dtype = 'I64' | 'U8' | 'F64';

/** `Sample.Status` of miles by the end of a generation. */
const statuses: Readonly<Record<string, string>> = { length: 'truncated', abort: 'aborted' };

/**
 * The samples of a session as miles' session server hands them out (its codec, 2026-08): a safetensors file with tensors
 * `tokens.N`, `loss_mask.N` and `rollout_log_probs.N` for each trajectory, and what is no tensor as JSON in `_samples_meta`. Mask and
 * logprobs are of the response: all tokens from the first sampled one on.
 *
 * @param maxTokens longer ones are cut there; 0: none are
 */
export async function encodeSamples(
  trajectories: AsyncIterable<Trajectory>,
  maxTokens: number,
  tokenizer: Tokenizer,
): Promise<Uint8Array> {
  const tensors: { name: string; dtype: Dtype; length: number; bytes: Uint8Array }[] = [];
  const add = (name: string, dtype: Dtype, values: BigInt64Array | Float64Array | Uint8Array): void => {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    tensors.push({ name, dtype, length: values.length, bytes });
  };
  const samples: object[] = [];
  for await (const { ids, logprobs, mask, versions, turns } of trajectories) {
    const n = samples.length;
    const length = maxTokens > 0 ? Math.min(maxTokens, ids.length) : ids.length;
    const first = mask.indexOf(1);
    const start = first < 0 ? length : Math.min(first, length);
    add(`tokens.${n}`, 'I64', BigInt64Array.from(ids.subarray(0, length), BigInt));
    add(`rollout_log_probs.${n}`, 'F64', logprobs.slice(start, length));
    add(`loss_mask.${n}`, 'U8', mask.slice(start, length));
    const cached = turns.reduce((sum, turn) => sum + Math.max(0, turn.cachedTokens), 0);
    const prompts = turns.reduce((sum, turn) => sum + Math.max(0, turn.promptTokens), 0);
    samples.push({
      response: await textOfIds(tokenizer, ids.subarray(start, length)),
      response_length: length - start,
      status: length < ids.length ? 'truncated' : (statuses[turns.at(-1)!.finishReason] ?? 'completed'),
      weight_versions: versions
        .filter(({ from }) => from < length)
        .map(({ version, from, to }) => [{ version, abs_start: from, abs_end: Math.min(to, length) }]),
      spec_info: {},
      prefix_cache_info: { cached_tokens: cached, total_prompt_tokens: prompts },
      metadata: { turns: turns.map(({ id, drift }) => ({ id, drift })) },
      reward: null,
      nulls: ['rollout_routed_experts', 'rollout_indexer_topk'],
    });
  }
  const meta = { samples, session_metadata: {}, empty_reason: samples.length === 0 ? 'no_turns' : null };
  add('_samples_meta', 'U8', Buffer.from(JSON.stringify(meta)));
  // Wide types first, so that each tensor is aligned.
  const ordered = tensors.toSorted((a, b) => Number(a.dtype === 'U8') - Number(b.dtype === 'U8'));
  let at = 0;
  const header: Record<string, object> = {};
  for (const { name, dtype, length, bytes } of ordered) {
    header[name] = { dtype, shape: [length], data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const json = JSON.stringify(header);
  const head = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([size, head, ...ordered.map(({ bytes }) => bytes)]);
}
