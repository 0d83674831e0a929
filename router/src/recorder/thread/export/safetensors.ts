import type { RoutedExperts } from '../../shared/turn.ts';
import { readExperts, shapeOf } from './experts.ts';
import { type TensorHead, safetensorsHead } from './safetensors-head.ts';
import type { Trajectory } from './trajectory.ts';
import { headJson, outlineJson, textJson } from './turn-json.ts';
import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

interface Tensor extends Omit<TensorHead, 'bytes'> {
  readonly spool: Spool;
}

/**
 * One file of tensors: those of all trajectories concatenated; `offsets` has the beginning of each and the end of the last one. With one
 * trajectory that is the form in which miles' session server returns samples: tokens i64, loss_mask u8,
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
    tokens: new Spool(dataDir),
    offsets: new Spool(dataDir),
    logprobs: new Spool(dataDir),
    mask: new Spool(dataDir),
    meta: new Spool(dataDir),
  };
  const routedExperts = new Rows('routed_experts', dataDir);
  const indexerTopk = new Rows('indexer_topk', dataDir);
  try {
    const offsets = [0n];
    let count = 0;
    for await (const trajectory of trajectories) {
      const { ids, logprobs, mask, turns } = trajectory;
      spools.tokens.push(BigInt64Array.from(ids, BigInt));
      spools.logprobs.push(logprobs);
      spools.mask.push(mask);
      offsets.push(offsets.at(-1)! + BigInt(ids.length));
      const { experts, indexer = null } = turns.at(-1)!;
      await routedExperts.add(experts, ids.length);
      await indexerTopk.add(indexer, ids.length);
      spools.meta.push(Buffer.from(`${count++ === 0 ? '[' : ','}${metaOf(trajectory)}`));
    }
    spools.meta.push(Buffer.from(count === 0 ? '[]' : ']'));
    spools.offsets.push(BigInt64Array.from(offsets));
    const tokens = Number(offsets.at(-1));
    const rows = [routedExperts, indexerTopk].filter(({ isEmpty }) => !isEmpty);
    const tensors: readonly Tensor[] = [
      { name: 'tokens', dtype: 'I64', shape: [tokens], spool: spools.tokens },
      { name: 'offsets', dtype: 'I64', shape: [offsets.length], spool: spools.offsets },
      ...rows.map((each) => each.offsets()),
      { name: 'rollout_log_probs', dtype: 'F64', shape: [tokens], spool: spools.logprobs },
      ...rows.map((each) => each.tensor()),
      { name: 'loss_mask', dtype: 'U8', shape: [tokens], spool: spools.mask },
      { name: 'meta', dtype: 'U8', shape: [spools.meta.bytes], spool: spools.meta },
    ];
    yield safetensorsHead(tensors.map(({ spool, ...tensor }) => ({ ...tensor, bytes: spool.bytes })));
    for (const { spool } of tensors) yield* spool.read();
  } finally {
    for (const spool of Object.values(spools)) spool.close();
    for (const each of [routedExperts, indexerTopk]) each.close();
  }
}

/** The rows of a tensor of all trajectories. All rows have one width: trajectories with another one have no rows. */
class Rows {
  readonly #name: string;
  readonly #dataDir: string | null;
  readonly #numbers: Spool;
  readonly #ends: Spool;
  readonly #offsets = [0n];
  #row: readonly number[] | null = null;

  constructor(name: string, dataDir: string | null) {
    this.#name = name;
    this.#dataDir = dataDir;
    this.#numbers = new Spool(dataDir);
    this.#ends = new Spool(dataDir);
  }

  get isEmpty(): boolean {
    return this.#row === null;
  }

  /** @param tensor of a trajectory of so many tokens; null: it has none */
  async add(tensor: RoutedExperts | null, tokens: number): Promise<void> {
    const shape = tensor === null ? null : shapeOf(tensor, tokens);
    let rows = 0;
    const isAlike = shape !== null && (this.#row === null || String(this.#row) === String(shape.slice(1)));
    if (isAlike && this.#dataDir !== null) {
      const take = (numbers: Int32Array): void => this.#numbers.push(numbers);
      if (await readExperts({ ...tensor!, shape }, this.#dataDir, take)) {
        rows = shape[0]!;
        this.#row ??= shape.slice(1);
      }
    }
    this.#offsets.push(this.#offsets.at(-1)! + BigInt(rows));
  }

  offsets(): Tensor {
    this.#ends.push(BigInt64Array.from(this.#offsets));
    return { name: `${this.#name}_offsets`, dtype: 'I64', shape: [this.#offsets.length], spool: this.#ends };
  }

  tensor(): Tensor {
    const shape = [Number(this.#offsets.at(-1)), ...(this.#row ?? [])];
    return { name: this.#name, dtype: 'I32', shape, spool: this.#numbers };
  }

  close(): void {
    this.#numbers.close();
    this.#ends.close();
  }
}

const metaOf = (trajectory: Trajectory): string =>
  JSON.stringify({
    ...headJson(trajectory),
    turns: trajectory.turns.map((turn) => ({ ...outlineJson(turn), ...textJson(turn) })),
  });

const PIECE_BYTES = 1_048_576;
let made = 0;

/** The file lives until it is closed, however that comes about. */
function openUnnamed(path: string): number {
  const file = openSync(path, 'wx+', 0o600);
  rmSync(path);
  return file;
}

/** Bytes that wait on disk, for formats that say at their beginning how much there will be. */
class Spool {
  readonly #file: number;
  bytes = 0;

  /** @param dataDir for where the system's temporary folder can't be written, as in a container whose root file system is read-only */
  constructor(dataDir: string | null) {
    const name = `turnout-export-${process.pid}-${performance.now()}-${made++}`;
    try {
      this.#file = openUnnamed(join(tmpdir(), name));
    } catch (error) {
      if (dataDir === null) throw error;
      this.#file = openUnnamed(join(dataDir, name));
    }
  }

  push(array: ArrayBufferView): void {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length;) at += writeSync(this.#file, bytes, at, bytes.length - at);
    this.bytes += bytes.length;
  }

  /** All of it, in order. */
  *read(): Generator<Uint8Array> {
    for (let at = 0; at < this.bytes;) {
      const piece = new Uint8Array(Math.min(PIECE_BYTES, this.bytes - at));
      const count = readSync(this.#file, piece, 0, piece.length, at);
      if (count === 0) throw new Error('the file that an export is gathered in has lost bytes');
      at += count;
      yield piece.subarray(0, count);
    }
  }

  close(): void {
    closeSync(this.#file);
  }
}
