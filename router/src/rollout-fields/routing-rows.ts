import { Unreadable } from '../generation/delta.ts';
import { readNpyHead } from '../kit/npy.ts';
import type { LayerFacts } from './layers.ts';

/** What a tensor of routed experts is made of. */
interface Tensor {
  /** The bytes of one number. */
  readonly width: 1 | 2 | 4;
  readonly data: Buffer;
  /** [rows, layers, experts per token], if it says so. */
  readonly shape: readonly number[] | null;
}

/**
 * The routing matrices of a sequence. Engines return a row for each token that was read: row r is of the forward that read the token at
 * position r and made the one at r + 1. They may leave out rows at the beginning. A row has all layers; dense ones are fillers.
 */
export class RoutingRows {
  readonly #tensor: Tensor;
  /** The places of the numbers in a row that a matrix has. */
  readonly #places: Int32Array;
  /** Numbers in a row. */
  readonly #rowLength: number;
  /** The position of the token whose matrix the first row is. */
  readonly #firstPosition: number;
  readonly #bytesOut: 1 | 2;

  /**
   * @param base64 the engine's value: of a .npy file (vLLM), or of raw int32 numbers (SGLang)
   * @param tokens of the sequence, prompt and output
   */
  constructor(base64: string, tokens: number, facts: LayerFacts, format: 'uint8' | 'uint16') {
    const tensor = tensorOf(Buffer.from(base64, 'base64'));
    this.#tensor = tensor;
    const numbers = tensor.data.length / tensor.width;
    const known = tensor.shape === null ? null : tensor.shape[1]! * tensor.shape[2]!;
    const rows = tensor.shape?.[0] ?? rowsOf(numbers, tokens, facts);
    const rowLength = known ?? numbers / rows;
    if (!Number.isInteger(rows) || !Number.isInteger(rowLength) || rows > tokens - 1 || rows * rowLength > numbers) {
      throw new Unreadable(`The engine returned ${numbers} routed experts (${rows} rows) for ${tokens} tokens.`);
    }
    const layers = tensor.shape?.[1] ?? facts.layers;
    const kept = facts.moeLayers;
    if (kept !== null && (layers === null || rowLength % layers !== 0 || kept.some((layer) => layer >= layers))) {
      const model = `a row of ${rowLength} numbers does not fit ${layers ?? 'an unknown number of'} layers`;
      throw new Unreadable(`The layers that the router was told of are not those of the model: ${model}.`);
    }
    this.#rowLength = rowLength;
    const perLayer = kept === null ? rowLength : rowLength / layers!;
    this.#places = Int32Array.from((kept ?? [0]).flatMap((layer) => range(layer * perLayer, perLayer)));
    this.#firstPosition = tokens - rows;
    this.#bytesOut = format === 'uint8' ? 1 : 2;
  }

  /** The matrix of the token at a position of the sequence, as base64; '' if there is none, as for the first token. */
  matrixOf(position: number): string {
    const row = position - this.#firstPosition;
    if (row < 0) return '';
    const { data, width } = this.#tensor;
    const start = row * this.#rowLength;
    const made = Buffer.allocUnsafe(this.#places.length * this.#bytesOut);
    for (const [i, place] of this.#places.entries()) {
      const expert = data.readUIntLE((start + place) * width, width);
      if (this.#bytesOut === 2) made.writeUInt16LE(expert, 2 * i);
      else if (expert < 256) made[i] = expert;
      else throw new Unreadable(tooManyExperts(expert + 1));
    }
    return made.toString('base64');
  }
}

/** @param experts at least so many */
export const tooManyExperts = (experts: number): string =>
  `The model has ${experts} experts or more, and a routing matrix of uint8 holds 256: ask with "routing_matrix_format": "uint16".`;

/** Of a tensor without a shape: what its length says, if rows were left out; else one for each token but the last. */
function rowsOf(numbers: number, tokens: number, { layers, perToken }: LayerFacts): number {
  return layers === null || perToken === null ? tokens - 1 : numbers / (layers * perToken);
}

const WIDTHS: Readonly<Record<string, 1 | 2 | 4>> = { u1: 1, i1: 1, u2: 2, i2: 2, i4: 4, u4: 4 };

function tensorOf(file: Buffer): Tensor {
  const head = readNpyHead(file);
  if (head === null) return { width: 4, data: file, shape: null };
  const { type, shape, end } = head;
  const width = WIDTHS[type];
  if (width === undefined || shape?.length !== 3) {
    throw new Unreadable(
      `The engine returned routed experts in an unknown form: ${type} (${shape?.join() ?? 'Fortran order'}).`,
    );
  }
  return { width, data: file.subarray(end), shape };
}

const range = (start: number, length: number): number[] => Array.from({ length }, (_, i) => start + i);
