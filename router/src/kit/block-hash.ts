/**
 * Hashes of a text's beginnings: one number for each block end, which stands for all that comes before it. Two texts
 * that share their hash of block i share everything up to there (but for collisions, one in 2^32 by chance).
 *
 * Blocks end at the same places in every text: each 64 units for the first 4,096, then each 512, so that short prompts
 * are told apart finely and long ones stay cheap. A unit is a byte; token ids that lie as 32-bit words are four units
 * each and so are cut every 16, then every 128 ids. What follows the last whole block is in no hash.
 */

const FINE_UNITS = 64;
const COARSE_UNITS = 512;
const FINE_BLOCKS = 64;
const FINE_END = FINE_UNITS * FINE_BLOCKS;

/** Whole blocks in a text of so many units. */
export function blockCount(units: number): number {
  if (units < FINE_END) return Math.floor(units / FINE_UNITS);
  return FINE_BLOCKS + Math.floor((units - FINE_END) / COARSE_UNITS);
}

/** Units of block `index`, counted from 0. */
export function blockUnits(index: number): number {
  return index < FINE_BLOCKS ? FINE_UNITS : COARSE_UNITS;
}

/** Units that the first `count` blocks cover. */
export function unitsOf(count: number): number {
  if (count <= FINE_BLOCKS) return count * FINE_UNITS;
  return FINE_END + (count - FINE_BLOCKS) * COARSE_UNITS;
}

/** The hash of each beginning of `bytes[start, end)` that ends with a whole block. Other seeds give other hashes. */
export function hashBlocks(bytes: Uint8Array, start: number, end: number, seed = 0): Uint32Array {
  const hashes = words(blockCount(end - start));
  seedLanes(seed);
  if (hashes.length > 0) absorb(bytes, start, start + unitsOf(hashes.length), hashes);
  return hashes;
}

/** One hash of all bytes, wherever they are cut into pieces. */
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
  // The zeros that fill the last stripe are not of the text: its length tells.
  return mix(digest(lanes[0]!, lanes[1]!, lanes[2]!, lanes[3]!) ^ bytes) >>> 0;
}

/** Hashes of short texts lie together in arrays of so many words: V8 takes a microsecond for an array of its own. */
const SHARED_WORDS = 4096;
let shared = new Uint32Array(SHARED_WORDS);
let sharedUsed = 0;

function words(count: number): Uint32Array {
  if (count > SHARED_WORDS / 16) return new Uint32Array(count);
  if (sharedUsed + count > SHARED_WORDS) {
    shared = new Uint32Array(SHARED_WORDS);
    sharedUsed = 0;
  }
  const taken = new Uint32Array(shared.buffer, 4 * sharedUsed, count);
  sharedUsed += count;
  return taken;
}

const STRIPE_BYTES = 16;
const stripe = new Uint8Array(STRIPE_BYTES);

/** What has been read so far. Four lanes take every fourth word each, so that the multiplications overlap. */
const lanes = new Int32Array(4);

const MULTIPLIER = 0x85ebca6b;

/** The start of every hash. */
function seedLanes(seed: number): void {
  for (let lane = 0; lane < 4; lane++) lanes[lane] = mix(seed + Math.imul(lane + 1, 0x9e3779b1));
}

/**
 * Reads whole stripes, at least one, and writes down the hash at each block end when `hashes` are wanted. Words are
 * read unaligned through a DataView: cheaper than a copy to an aligned place. Each step can be undone, so texts that
 * differ in one word differ in every hash from there on. A rotation in place of the shift is 10 % faster, but then
 * changes of two letters near each other cancel out 10,000 times more often than by chance. `for` would take 1.4 times
 * as long as `do`.
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

/** Four lanes as one number; rotated as in xxHash32, so that equal changes in two lanes don't cancel out. */
function digest(a: number, b: number, c: number, d: number): number {
  return mix(rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18));
}

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}

/** murmur3's finaliser: every bit of the input reaches every bit of the result. */
function mix(word: number): number {
  let mixed = Math.imul(word ^ (word >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
