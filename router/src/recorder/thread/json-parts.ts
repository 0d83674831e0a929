/** Takes about 2 ms as logprobs. */
const PART_NUMBERS = 4_096;
/** A multiple of 3: the base64 of the parts is that of the whole. */
const PART_BYTES = 49_152;
/** From this size on JSON is returned in pieces: it may be longer than a string of V8 (512 MiB), and take long to make. */
const PIECE_LETTERS = 65_536;

/** A list of numbers as JSON, in parts, because millions of numbers take seconds. JSON has null for NaN. */
export function* numbersJson(numbers: Int32Array | Float64Array | Uint8Array): Generator<string> {
  yield '[';
  for (let at = 0; at < numbers.length; at += PART_NUMBERS) {
    const part = JSON.stringify(Array.from(numbers.subarray(at, at + PART_NUMBERS))).slice(1, -1);
    yield at === 0 ? part : `,${part}`;
  }
  yield ']';
}

/** A list as JSON, in parts: an item each. */
export function* listJson(items: readonly unknown[]): Generator<string> {
  yield '[';
  for (const [i, item] of items.entries()) yield `${i === 0 ? '' : ','}${JSON.stringify(item)}`;
  yield ']';
}

/** Bytes as a text of base64, in parts. */
export function* base64Json(bytes: Buffer): Generator<string> {
  yield '"';
  for (let at = 0; at < bytes.length; at += PART_BYTES) yield bytes.toString('base64', at, at + PART_BYTES);
  yield '"';
}

/** The bytes of JSON that is made in parts. The last piece is returned after the end of `parts`. */
export function* inPieces(parts: Iterable<string>): Generator<Uint8Array> {
  let text = '';
  for (const part of parts) {
    text += part;
    if (text.length < PIECE_LETTERS) continue;
    yield Buffer.from(text);
    text = '';
  }
  yield Buffer.from(text);
}
