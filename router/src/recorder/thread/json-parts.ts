/** Takes about 2 ms as logprobs. */
const PART_NUMBERS = 4_096;

/** A list of numbers as JSON, in parts, because millions of numbers take seconds. JSON has null for NaN. */
export function* numbersJson(numbers: Int32Array | Float64Array | Uint8Array): Generator<string> {
  yield '[';
  for (let at = 0; at < numbers.length; at += PART_NUMBERS) {
    const part = JSON.stringify(Array.from(numbers.subarray(at, at + PART_NUMBERS))).slice(1, -1);
    yield at === 0 ? part : `,${part}`;
  }
  yield ']';
}
