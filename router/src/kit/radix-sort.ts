const DIGIT_BITS = 11;
const DIGITS = 2 ** DIGIT_BITS;
const ALL_BITS = 32;

type Numbers = Uint32Array<ArrayBuffer>;

/** Sorts 32-bit numbers, and a second array with them, in a third of the time of a typed array's own sort. Stable. */
export function sortedTogether(numbers: Numbers, beside: Numbers): [numbers: Numbers, beside: Numbers] {
  let [from, fromBeside] = [numbers, beside];
  let [to, toBeside] = [new Uint32Array(numbers.length), new Uint32Array(numbers.length)];
  const places = new Uint32Array(DIGITS);
  for (let shift = 0; shift < ALL_BITS; shift += DIGIT_BITS) {
    countInto(places, from, shift);
    for (let i = 0; i < from.length; i++) {
      const place = places[(from[i]! >>> shift) & (DIGITS - 1)]!++;
      to[place] = from[i]!;
      toBeside[place] = fromBeside[i]!;
    }
    [from, to] = [to, from];
    [fromBeside, toBeside] = [toBeside, fromBeside];
  }
  return [from, fromBeside];
}

/** The index where the numbers with each digit begin. */
function countInto(places: Uint32Array, numbers: Numbers, shift: number): void {
  places.fill(0);
  for (let i = 0; i < numbers.length; i++) places[(numbers[i]! >>> shift) & (DIGITS - 1)]!++;
  let sum = 0;
  for (let digit = 0; digit < DIGITS; digit++) {
    const count = places[digit]!;
    places[digit] = sum;
    sum += count;
  }
}
