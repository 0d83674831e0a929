import type { Indexer } from '../../../engines/dialects/generate.ts';
import type { RoutedExperts, Turn } from '../../shared/turn.ts';
import { markOf } from '../../shared/experts-cutter.ts';
import type { ExpertsFiles } from '../capture/experts-files.ts';
import type { Sampled } from './sampled.ts';

/** The tensors of a sample, as files. */
export type KeptTensors = Pick<Turn, 'experts' | 'indexer'>;

/**
 * @param key of the tensors of its response; null: it had none
 * @param tokens of prompt and answer
 */
export function keptTensors(
  files: ExpertsFiles | null,
  key: number | null,
  { experts, indexer }: Pick<Sampled, 'experts' | 'indexer'>,
  tokens: number,
): KeptTensors {
  if (files === null || key === null) return { experts: null };
  const own = indexer === undefined ? null : files.keep(key, indexer.cut);
  const kept = { experts: files.keep(key, experts) };
  return own === null ? kept : { ...kept, indexer: shaped(own, indexer!.layers, tokens) };
}

/** SGLang returns the number of layers of "indexer_topk" in `indexer_topk_num_layers`, and a row for each token but the last. */
function shaped(tensor: RoutedExperts, layers: number, tokens: number): RoutedExperts {
  const width = tensor.bytes / 4 / layers / (tokens - 1);
  const isWhole = tensor.shape === null && Number.isInteger(width) && width > 0;
  return isWhole ? { ...tensor, shape: [tokens - 1, layers, width] } : tensor;
}

/** The facts of a sample's sparse attention, which was cut out of the response. */
export function indexerOf(indexer: Indexer | null): Pick<Sampled, 'indexer'> {
  const cut = markOf(indexer?.value);
  return cut < 0 ? {} : { indexer: { cut, layers: indexer!.layers ?? 0 } };
}
