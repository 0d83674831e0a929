import type { Worker } from '../../../fleet/worker.ts';

/** Tokens of prompt and answer that a model has room for, as its engine lists it; 0: it doesn't say. */
export function maxModelLen({ models }: Worker, model: string): number {
  const [only] = models?.size === 1 ? models.values() : [];
  const json = models?.get(model) ?? only;
  if (json === undefined) return 0;
  const { max_model_len: length } = JSON.parse(json) as { max_model_len?: unknown };
  return typeof length === 'number' ? length : 0;
}
