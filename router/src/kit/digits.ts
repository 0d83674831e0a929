/**
 * Decimal digits four at a time: V8 takes some 20 instructions for each byte that it looks at, and as many for a word. The first byte
 * of a word is its lowest one.
 */

const ZEROS = 0x30_30_30_30;
/** Added to a byte, it sets its highest bit from ten on. */
const FROM_TEN = 0x76_76_76_76;
const HIGHEST_BITS = 0x80_80_80_80 | 0;

/** 10^0 to 10^4: what stands before so many digits more is worth. */
export const TENS = Int32Array.from({ length: 5 }, (_, power) => 10 ** power);

/** With how many digits a word begins. */
export function digitsOf(word: number): number {
  const distance = word ^ ZEROS;
  // Only what is behind the first byte that is no digit may be wrong.
  const others = ((distance + FROM_TEN) | 0 | distance) & HIGHEST_BITS;
  return others === 0 ? 4 : (31 - Math.clz32(others & -others)) >> 3;
}

/** What the first `digits` bytes of a word, one at least, are as a number. */
export function valueOf(word: number, digits: number): number {
  // Zeros in front change nothing.
  const all = (word << (32 - 8 * digits)) & 0x0f_0f_0f_0f;
  const pairs = (all * 10 + (all >>> 8)) & 0x00_ff_00_ff;
  return (pairs & 0xff) * 100 + (pairs >>> 16);
}
