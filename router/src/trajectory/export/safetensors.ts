import { outcomeJson } from '../outcome.ts';
import type { RoutedExperts } from '../turn.ts';
import { readExperts } from './experts.ts';
import { Spool } from './spool.ts';
import { type Trajectory, isExact } from './trajectory.ts';
import { outlineJson, textJson } from './turn-json.ts';

type Dtype = 'I64' | 'F64' | 'I32' | 'U8';

interface Tensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly spool: Spool;
}

/**
 * One file of tensors: those of all trajectories one behind the other, `offsets` says where each begins and where the last
 * ends. With one trajectory that is the form in which miles' session server hands out samples: tokens i64, loss_mask u8,
 * rollout_log_probs f64, routed_experts i32, meta as JSON in u8. Wide types come first, so that each tensor is aligned.
 *
 * The format begins with the sizes of all tensors (8 bytes: length of a JSON header, the header, raw bytes), so the tensors wait
 * on disk until they are known.
 */
export async function* toSafetensors(
  trajectories: AsyncIterable<Trajectory>,
  dataDir: string | null,
): AsyncGenerator<Uint8Array> {
  const spools = {
    tokens: new Spool(),
    offsets: new Spool(),
    expertOffsets: new Spool(),
    logprobs: new Spool(),
    experts: new Spool(),
    mask: new Spool(),
    meta: new Spool(),
  };
  try {
    const offsets = [0n];
    const expertRows = [0n];
    let expertShape: readonly number[] | null = null;
    let count = 0;
    for await (const trajectory of trajectories) {
      const { ids, logprobs, mask } = trajectory;
      spools.tokens.push(BigInt64Array.from(ids, BigInt));
      spools.logprobs.push(logprobs);
      spools.mask.push(mask);
      offsets.push(offsets.at(-1)! + BigInt(ids.length));
      const { experts } = trajectory.turns.at(-1)!;
      const shape: readonly number[] | null = experts === null ? null : shapeOf(experts, ids.length);
      // Rows of one width only make a tensor.
      let rows = 0;
      if (
        shape !== null &&
        dataDir !== null &&
        (expertShape === null || String(expertShape) === String(shape.slice(1)))
      ) {
        const isRead = await readExperts({ ...experts!, shape }, dataDir, (numbers) => spools.experts.push(numbers));
        if (isRead) {
          rows = shape[0]!;
          expertShape ??= shape.slice(1);
        }
      }
      expertRows.push(expertRows.at(-1)! + BigInt(rows));
      spools.meta.push(Buffer.from(`${count++ === 0 ? '[' : ','}${metaOf(trajectory)}`));
    }
    spools.meta.push(Buffer.from(count === 0 ? '[]' : ']'));
    spools.offsets.push(BigInt64Array.from(offsets));
    spools.expertOffsets.push(BigInt64Array.from(expertRows));
    const tokens = Number(offsets.at(-1));
    const expertsShape = [Number(expertRows.at(-1)), ...(expertShape ?? [])];
    const all: readonly Tensor[] = [
      { name: 'tokens', dtype: 'I64', shape: [tokens], spool: spools.tokens },
      { name: 'offsets', dtype: 'I64', shape: [offsets.length], spool: spools.offsets },
      { name: 'routed_experts_offsets', dtype: 'I64', shape: [offsets.length], spool: spools.expertOffsets },
      { name: 'rollout_log_probs', dtype: 'F64', shape: [tokens], spool: spools.logprobs },
      { name: 'routed_experts', dtype: 'I32', shape: expertsShape, spool: spools.experts },
      { name: 'loss_mask', dtype: 'U8', shape: [tokens], spool: spools.mask },
      { name: 'meta', dtype: 'U8', shape: [spools.meta.bytes], spool: spools.meta },
    ];
    const tensors = all.filter(({ name }) => expertShape !== null || !name.startsWith('routed_experts'));
    yield headOf(tensors);
    for (const { spool } of tensors) yield* spool.read();
  } finally {
    for (const spool of Object.values(spools)) spool.close();
  }
}

function metaOf({ id, session, group, tenant, model, outcome, versions, isAmbiguous, turns }: Trajectory): string {
  const ended = { exact: isExact({ turns }), ...outcomeJson(outcome) };
  return JSON.stringify({
    id,
    session,
    group,
    tenant,
    model,
    ...ended,
    versions,
    ambiguous: isAmbiguous,
    turns: turns.map((turn) => ({ ...outlineJson(turn), ...textJson(turn) })),
  });
}

function headOf(tensors: readonly Tensor[]): Uint8Array {
  let at = 0;
  const entries = tensors.map(({ name, dtype, shape, spool: { bytes } }) => {
    at += bytes;
    return [name, { dtype, shape, data_offsets: [at - bytes, at] }];
  });
  const json = JSON.stringify(Object.fromEntries(entries));
  // Spaces up to a multiple of eight: what follows is aligned then.
  const header = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header]);
}

/** SGLang names no shape: int32, a row for each token but the last. */
function shapeOf({ shape, bytes }: RoutedExperts, tokens: number): readonly number[] | null {
  if (shape !== null) return shape;
  const rows = tokens - 1;
  const width = bytes / 4 / rows;
  return rows > 0 && Number.isInteger(width) && width > 0 ? [rows, width] : null;
}
