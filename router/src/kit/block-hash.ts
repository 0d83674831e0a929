/**
 * Hashes of the prefixes of a text: one number for each block end, for all that comes before it. Two texts with the
 * same hash of block i are equal up to there (except for collisions, one in 2^32).
 *
 * Blocks end at the same offsets in every text: every 64 units up to 4,096, then every 512, so that short prompts are
 * distinguished finely and long ones stay cheap. A unit is a byte; token ids as 32-bit words are four units each. Bytes
 * after the last whole block are in no hash.
 */

const FINE_UNITS = 64;
const COARSE_UNITS = 512;
const FINE_BLOCKS = 64;
const FINE_END = FINE_UNITS * FINE_BLOCKS;

export function blockCount(units: number): number {
  if (units < FINE_END) return Math.floor(units / FINE_UNITS);
  return FINE_BLOCKS + Math.floor((units - FINE_END) / COARSE_UNITS);
}

/** Units of block `index`, from 0. */
export function blockUnits(index: number): number {
  return index < FINE_BLOCKS ? FINE_UNITS : COARSE_UNITS;
}

/** Units in the first `count` blocks. */
export function unitsOf(count: number): number {
  if (count <= FINE_BLOCKS) return count * FINE_UNITS;
  return FINE_END + (count - FINE_BLOCKS) * COARSE_UNITS;
}

/** The hashes at all block ends in `bytes[start, end)`. */
export function hashBlocks(bytes: Uint8Array, start: number, end: number, seed = 0): Uint32Array {
  const hashes = new Uint32Array(blockCount(end - start));
  seedLanes(seed);
  if (hashes.length > 0) absorb(bytes, start, start + unitsOf(hashes.length), hashes);
  return hashes;
}

/** One hash of all bytes, independent of how they are split. */
export function hashBytes(pieces: readonly Uint8Array[], seed = 0): number {
  seedLanes(seed);
  let bytes = 0;
  for (const piece of pieces) {
    let at = 0;
    const begun = bytes % STRIPE_BYTES;
    if (begun > 0) {
      at = Math.min(STRIPE_BYTES - begun, piece.length);
      stripe.set(piece.subarray(0, at), begun);
      if (begun + at === STRIPE_BYTES) absorb(stripe, 0, STRIPE_BYTES, null);
    }
    const wholeEnd = piece.length - ((piece.length - at) % STRIPE_BYTES);
    if (wholeEnd > at) absorb(piece, at, wholeEnd, null);
    if (piece.length > wholeEnd) stripe.set(piece.subarray(wholeEnd), 0);
    bytes += piece.length;
  }
  const left = bytes % STRIPE_BYTES;
  if (left > 0) {
    stripe.fill(0, left);
    absorb(stripe, 0, STRIPE_BYTES, null);
  }
  // The length distinguishes texts that differ only in trailing zeros.
  return mix(digest(lanes[0]!, lanes[1]!, lanes[2]!, lanes[3]!) ^ bytes) >>> 0;
}

const STRIPE_BYTES = 16;
const stripe = new Uint8Array(STRIPE_BYTES);

/** The state of the hash. Each of four lanes takes every fourth word, so that the multiplications overlap. */
const lanes = new Int32Array(4);

const MULTIPLIER = 0x85ebca6b;

function seedLanes(seed: number): void {
  for (let lane = 0; lane < 4; lane++) lanes[lane] = mix(seed + Math.imul(lane + 1, 0x9e3779b1));
}

/**
 * Reads whole stripes, at least one, and stores the hash at each block end if `hashes` is given. A DataView reads
 * unaligned words more cheaply than an aligned copy. Each step is invertible, so texts that differ in one word differ
 * in every later hash. A rotation in place of the shift is 10 % faster, but then changes of two letters near each other
 * cancel 10,000 times more often than by chance. `for` would take 1.4 times as long as `do`.
 */
function absorb(bytes: Uint8Array, from: number, to: number, hashes: Uint32Array | null): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset + from, to - from);
  let a = lanes[0]!;
  let b = lanes[1]!;
  let c = lanes[2]!;
  let d = lanes[3]!;
  let at = 0;
  const end = to - from;
  for (let i = 0; at < end; i++) {
    const blockEnd = hashes === null ? end : at + blockUnits(i);
    do {
      a = Math.imul(a ^ view.getInt32(at, true), MULTIPLIER);
      a ^= a >>> 13;
      b = Math.imul(b ^ view.getInt32(at + 4, true), MULTIPLIER);
      b ^= b >>> 13;
      c = Math.imul(c ^ view.getInt32(at + 8, true), MULTIPLIER);
      c ^= c >>> 13;
      d = Math.imul(d ^ view.getInt32(at + 12, true), MULTIPLIER);
      d ^= d >>> 13;
      at += STRIPE_BYTES;
    } while (at < blockEnd);
    if (hashes !== null) hashes[i] = digest(a, b, c, d);
  }
  lanes[0] = a;
  lanes[1] = b;
  lanes[2] = c;
  lanes[3] = d;
}

/** Four lanes as one number; rotated as in xxHash32, so that equal changes in two lanes do not cancel. */
function digest(a: number, b: number, c: number, d: number): number {
  return mix(rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18));
}

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}

/** murmur3's finaliser: every bit of the input affects every bit of the result. */
function mix(word: number): number {
  let mixed = Math.imul(word ^ (word >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}

/** Bytes of a prompt that are hashed, half a million tokens of text: inserting the blocks of 16 MB at once would take a policy 15 ms. */
export const MAX_BLOCK_BYTES = unitsOf(4_096);
