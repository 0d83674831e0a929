import type { ExportFormat } from '../../shared/export-formats.ts';
import type { TrajectoryStore } from '../store/store.ts';
import { toJsonl } from './jsonl.ts';
import { toParquet } from './parquet.ts';
import { toSafetensors } from './safetensors.ts';
import type { Trajectory } from './trajectory.ts';
import { type ExportProgress, type ExportQuery, walk } from './walk.ts';

interface Format {
  readonly encode: (trajectories: AsyncIterable<Trajectory>, dataDir: string | null) => AsyncGenerator<Uint8Array>;
  /** It has the requests and responses of turns whose tokens are known. */
  readonly hasBodies: boolean;
}

const formats: Readonly<Record<ExportFormat, Format>> = {
  jsonl: { encode: toJsonl, hasBodies: true },
  parquet: { encode: toParquet, hasBodies: false },
  safetensors: { encode: toSafetensors, hasBodies: false },
};

/** The bytes of an export, made at the pace of the reader. Its first trajectory is read already: rejects if the store is away. */
export async function exportBytes(
  store: TrajectoryStore,
  { format, query, dataDir }: { format: ExportFormat; query: ExportQuery; dataDir: string | null },
  progress: ExportProgress,
): Promise<AsyncGenerator<Uint8Array>> {
  const { encode, hasBodies } = formats[format];
  const trajectories = walk(store, query, progress, hasBodies);
  const first = await trajectories.next();
  return encode(first.done === true ? trajectories : withFirst([first.value], trajectories), dataDir);
}

/** @param first taken out of its list, because a generator holds its arguments as long as it runs: trajectories may be large */
async function* withFirst(first: Trajectory[], others: AsyncGenerator<Trajectory>): AsyncGenerator<Trajectory> {
  yield first.pop()!;
  yield* others;
}
