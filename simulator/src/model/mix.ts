/**
 * Murmur3's 32-bit steps: cheap, well spread, the same on every machine. The only source of randomness of the
 * simulation.
 */

/** The next state of a chain after reading `value`. */
export function mix(state: number, value: number): number {
  let k = Math.imul(value, 0xcc9e2d51);
  k = (k << 15) | (k >>> 17);
  let h = state ^ Math.imul(k, 0x1b873593);
  h = (h << 13) | (h >>> 19);
  return (Math.imul(h, 5) + 0xe6546b64) | 0;
}

/** Spreads a state over 32 unsigned bits. */
export function finish(state: number): number {
  let h = state ^ (state >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** A number in [0, 1). */
export function unit(state: number): number {
  return finish(state) / 4294967296;
}

export function mixText(state: number, text: string): number {
  for (let i = 0; i < text.length; i += 1) state = mix(state, text.charCodeAt(i));
  return mix(state, text.length);
}
