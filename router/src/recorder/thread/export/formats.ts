import type { ExportFormat } from '../../shared/export-formats.ts';
import type { TrajectoryStore } from '../store/store.ts';
import { toJsonl } from './jsonl.ts';
import { toParquet } from './parquet.ts';
import { toSafetensors } from './safetensors.ts';
import type { Trajectory } from './trajectory.ts';
import { type ExportProgress, type ExportQuery, walk } from './walk.ts';

type Encode = (trajectories: AsyncIterable<Trajectory>, dataDir: string | null) => AsyncGenerator<Uint8Array>;

const encoders: Readonly<Record<ExportFormat, Encode>> = {
  jsonl: toJsonl,
  parquet: toParquet,
  safetensors: toSafetensors,
};

/** The bytes of an export, made at the pace of the reader. */
export function exportBytes(
  store: TrajectoryStore,
  { format, query, dataDir }: { format: ExportFormat; query: ExportQuery; dataDir: string | null },
  progress: ExportProgress,
): AsyncGenerator<Uint8Array> {
  return encoders[format](walk(store, query, progress), dataDir);
}
