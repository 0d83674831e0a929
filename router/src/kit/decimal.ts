/**
 * Decimal numbers as `Number` reads them, without their text: the digits are gathered as whole numbers, and divided by a power of
 * ten with twice the precision of a double (Dekker 1971). Logprobs have 16 digits and more, so that is where the time would go:
 * `Number` of a piece of text costs 150 ns, this 20. Where the quotient is too near the middle between two doubles to tell, and
 * beyond its range, the answer is NaN, and `Number` has to be asked.
 */

/** Digits that a double holds whatever they are. */
export const HIGH_DIGITS = 15;
/** Those that may follow: ten to the power of so many times the others is known exactly as two doubles. */
export const LOW_DIGITS = 6;
/** 10^45 is the last power that is the sum of two doubles. */
const MAX_POWER = 45;

const powers = Array.from({ length: MAX_POWER + 1 }, (_, power) => 10n ** BigInt(power));
const HIGH = Float64Array.from(powers, Number);
const LOW = Float64Array.from(powers, (power, i) => Number(power - BigInt(HIGH[i]!)));

/** Veltkamp: the upper half of the digits of a double. */
const SPLIT = 134_217_729;
const upper = (x: number): number => {
  const scaled = SPLIT * x;
  return scaled - (scaled - x);
};

/** What `a * b` lacks of the true product. */
function productError(a: number, b: number, product: number): number {
  const aHigh = upper(a);
  const bHigh = upper(b);
  const aLow = a - aHigh;
  const bLow = b - bHigh;
  return aHigh * bHigh - product + aHigh * bLow + aLow * bHigh + aLow * bLow;
}

/**
 * @param high the first digits, at most `HIGH_DIGITS`
 * @param low the `lowDigits` digits after them
 * @returns the double next to `(high * 10^lowDigits + low) / 10^power`, NaN where that has to be told in another way
 */
export function decimal(high: number, low: number, lowDigits: number, power: number): number {
  if (power < 0 || power > MAX_POWER || lowDigits > LOW_DIGITS) return Number.NaN;
  // Both are exact, and so is their quotient but for one rounding (Clinger 1990).
  if (lowDigits === 0 && power <= 22) return high / HIGH[power]!;
  const shifted = high * HIGH[lowDigits]!;
  const digits = shifted + low;
  const rest = productError(high, HIGH[lowDigits]!, shifted) + (low - (digits - shifted));
  const divisor = HIGH[power]!;
  const quotient = digits / divisor;
  const product = quotient * divisor;
  const left = digits - product - productError(quotient, divisor, product) + rest - quotient * LOW[power]!;
  const more = left / divisor;
  const sum = quotient + more;
  const error = more - (sum - quotient);
  // Were it rounded the other way with an error that is a little larger, it is not known well enough.
  return sum + error * 1.000_001 === sum ? sum : Number.NaN;
}
