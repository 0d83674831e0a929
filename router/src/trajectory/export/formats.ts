import type { TrajectoryStore } from '../store/store.ts';
import { toJsonl } from './jsonl.ts';
import { toParquet } from './parquet.ts';
import { toSafetensors } from './safetensors.ts';
import type { Trajectory } from './trajectory.ts';
import { type ExportProgress, type ExportQuery, walk } from './walk.ts';

type Encode = (trajectories: AsyncIterable<Trajectory>, dataDir: string | null) => AsyncGenerator<Uint8Array>;

/** The forms in which trajectories are handed out. */
export const formats = {
  jsonl: { contentType: 'application/x-ndjson', encode: toJsonl as Encode },
  parquet: { contentType: 'application/vnd.apache.parquet', encode: toParquet as Encode },
  safetensors: { contentType: 'application/octet-stream', encode: toSafetensors as Encode },
} as const;

export type ExportFormat = keyof typeof formats;
export const formatNames = Object.keys(formats) as [ExportFormat, ...ExportFormat[]];

/** The bytes of an export as they are made; whoever reads them sets the pace. */
export function exportBytes(
  store: TrajectoryStore,
  { format, query, dataDir }: { format: ExportFormat; query: ExportQuery; dataDir: string | null },
  progress: ExportProgress,
): AsyncGenerator<Uint8Array> {
  return formats[format].encode(walk(store, query, progress), dataDir);
}
