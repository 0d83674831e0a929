/** 32 bits that tell numbers apart, and what came before them (`begun`). NaN and -0 count as what they are in memory. */
export function digestOf(numbers: Float64Array | null, begun: number): number {
  let hash = begun ^ 0x811c9dc5;
  if (numbers !== null) {
    const words = new Uint32Array(numbers.buffer, numbers.byteOffset, 2 * numbers.length);
    for (let i = 0; i < words.length; i++) {
      hash = Math.imul(hash ^ words[i]!, 0x85ebca6b);
      hash ^= hash >>> 15;
    }
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0xc2b2ae35);
  return (hash ^ (hash >>> 13)) >>> 0;
}
