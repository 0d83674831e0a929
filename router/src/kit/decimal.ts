/**
 * Decimal numbers as `Number` reads them, without their text: the digits are gathered as whole numbers, and multiplied by the inverse of
 * a power of ten with twice the precision of a double (Dekker 1971). Logprobs have 16 digits and more, so that is where the time would
 * go: `Number` of a piece of text costs 150 ns, this 10. Where the product is too near the middle between two doubles to tell, and
 * beyond its range, the answer is NaN, and `Number` has to be asked.
 */

/** Digits that a double holds whatever they are. */
export const HIGH_DIGITS = 15;
/** So many of them, from the first that is not zero, have to be there before others follow: the rounding of those does not count then. */
export const MIN_HIGH_DIGITS = 9;
const MAX_POWER = 45;

/** Veltkamp: the upper half of the digits of a double. */
const SPLIT = 134_217_729;
const upper = (x: number): number => {
  const scaled = SPLIT * x;
  return scaled - (scaled - x);
};

/** For each power: the double next to 10^-power, its upper half, its lower half, and what it lacks. */
const INVERSES = new Float64Array(4 * (MAX_POWER + 1));
for (let power = 0; power <= MAX_POWER; power++) {
  const nearest = Number(`1e-${power}`);
  // As a fraction: a whole number of 53 bits by a power of two.
  const bits = 52 - Math.floor(Math.log2(nearest));
  const lacking = 2n ** BigInt(bits) - BigInt(nearest * 2 ** bits) * 10n ** BigInt(power);
  const half = upper(nearest);
  INVERSES.set([nearest, half, nearest - half, (Number(lacking) / 10 ** power) * 2 ** -bits], 4 * power);
}

/**
 * @param high the first digits, at most `HIGH_DIGITS`; at least `MIN_HIGH_DIGITS` where `low` has any
 * @param low the `lowDigits` digits after them, at most `HIGH_DIGITS`
 * @returns the double next to `(high * 10^lowDigits + low) / 10^power`, NaN where that has to be told in another way
 */
export function decimal(high: number, low: number, lowDigits: number, power: number): number {
  const highPower = power - lowDigits;
  if (highPower < 0 || power > MAX_POWER) return Number.NaN;
  const inverse = INVERSES[4 * highPower]!;
  const inverseUpper = INVERSES[4 * highPower + 1]!;
  const inverseLower = INVERSES[4 * highPower + 2]!;
  const scaled = SPLIT * high;
  const highUpper = scaled - (scaled - high);
  const highLower = high - highUpper;
  const product = high * inverse;
  const lost = highUpper * inverseUpper - product + highUpper * inverseLower + highLower * inverseUpper;
  const rest = lost + highLower * inverseLower + high * INVERSES[4 * highPower + 3]! + low * INVERSES[4 * power]!;
  const sum = product + rest;
  const error = rest - (sum - product);
  // Were it rounded the other way with an error that is a little larger, it is not known well enough.
  return sum + error * 1.000_001 === sum ? sum : Number.NaN;
}
