/** The content types of exports, by format. */
export const formats = {
  jsonl: 'application/x-ndjson',
  parquet: 'application/vnd.apache.parquet',
  safetensors: 'application/octet-stream',
} as const;

export type ExportFormat = keyof typeof formats;
export const formatNames = Object.keys(formats) as [ExportFormat, ...ExportFormat[]];
