import { readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readExperts, shapeOf } from '../export/experts.ts';
import type { Trajectory } from '../export/trajectory.ts';
import type { RoutedExperts } from '../../shared/turn.ts';

/** A tensor of a whole trajectory: routed experts, or what its sparse attention looked at. */
export interface ExpertsRows {
  /** A row for each token but the last; what a row has is [layers, top_k] where that is known. */
  readonly shape: readonly number[];
  readonly numbers: Int32Array;
}

/** Reads the routed experts that an engine returned with a trajectory's last turn: all rows from the first token on. */
export class ExpertsReader {
  readonly #dataDir: string;
  readonly #row: readonly [layers: number, perToken: number] | null;

  /** @param tokenizerPath the folder that may have the model's config.json */
  constructor(dataDir: string, tokenizerPath: string) {
    this.#dataDir = dataDir;
    this.#row = rowOf(tokenizerPath);
  }

  /** @param tokens so many of its tokens are wanted @returns null: they are not kept, or not those of all its tokens */
  read(trajectory: Trajectory, tokens: number): Promise<ExpertsRows | null> {
    return this.#read(trajectory, trajectory.turns.at(-1)!.experts, tokens, this.#row);
  }

  /** The same of what its sparse attention looked at. */
  readIndexer(trajectory: Trajectory, tokens: number): Promise<ExpertsRows | null> {
    return this.#read(trajectory, trajectory.turns.at(-1)!.indexer ?? null, tokens, null);
  }

  async #read(
    { ids }: Trajectory,
    experts: RoutedExperts | null,
    tokens: number,
    ofModel: readonly [layers: number, perToken: number] | null,
  ): Promise<ExpertsRows | null> {
    const rows = ids.length - 1;
    const shape = experts === null ? null : shapeOf(experts, ids.length);
    if (experts === null || shape === null || rows < 1 || shape[0] !== rows) return null;
    const row = shape.slice(1);
    const width = row.reduce((product, size) => product * size, 1);
    if (!Number.isInteger(width) || width < 1) return null;
    const numbers = new Int32Array(rows * width);
    let at = 0;
    const isRead = await readExperts({ ...experts, shape }, this.#dataDir, (part) => {
      numbers.set(part, at);
      at += part.length;
    });
    if (!isRead) return null;
    const [layers, perToken] = ofModel ?? [0, 0];
    const own = row.length === 1 && layers * perToken === width ? [layers, perToken] : row;
    const wanted = Math.max(0, tokens - 1);
    return { shape: [wanted, ...own], numbers: numbers.subarray(0, wanted * width) };
  }
}

/** Layers and experts per token of the model, by its config.json; null: they are not there. */
function rowOf(tokenizerPath: string): readonly [number, number] | null {
  try {
    const folder = statSync(tokenizerPath).isDirectory() ? tokenizerPath : dirname(tokenizerPath);
    const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Record<string, unknown>;
    const own = (config['text_config'] ?? config) as Record<string, unknown>;
    const layers = own['num_hidden_layers'];
    const experts = own['num_experts_per_tok'] ?? own['num_experts_per_token'] ?? own['moe_topk'];
    return typeof layers === 'number' && typeof experts === 'number' ? [layers, experts] : null;
  } catch {
    return null;
  }
}
