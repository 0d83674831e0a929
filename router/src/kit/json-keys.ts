/** The keys that somebody looks for: ASCII, without quotes and escapes. */
export class KeyTable {
  /** Each with the quote behind it. */
  readonly #names: readonly Buffer[];
  /** By their first letters: names, by their indexes. */
  readonly #slots: readonly (readonly number[])[];

  constructor(names: readonly string[]) {
    this.#names = names.map((name) => Buffer.from(`${name}"`));
    const slots: number[][] = Array.from({ length: 32 }, () => []);
    for (const [i, name] of this.#names.entries()) slots[name[0]! & 31]!.push(i);
    this.#slots = slots;
  }

  /** @returns the index of the name that stands here, with the quote behind it; -1 for none */
  find(bytes: Buffer, start: number, end: number): number {
    if (start >= end) return -1;
    const slot = this.#slots[bytes[start]! & 31]!;
    for (let i = 0; i < slot.length; i++) if (this.#isAt(slot[i]!, bytes, start, end)) return slot[i]!;
    return -1;
  }

  /** Bytes of a name, with its quote. */
  lengthOf(which: number): number {
    return this.#names[which]!.length;
  }

  #isAt(which: number, bytes: Buffer, start: number, end: number): boolean {
    const name = this.#names[which]!;
    return start + name.length <= end && startsWith(bytes, start, name);
  }
}

interface Word {
  readonly bytes: Buffer;
  readonly text: string;
}

/** Words that were read, by lengths: nearly always the same few come again, and to compare one is less work than to make its string. */
const words: (Word | undefined)[] = Array.from({ length: 64 });

/**
 * A string of JSON without escapes.
 * @param end the bytes up to it are ASCII
 */
export function wordAt(bytes: Buffer, start: number, end: number): string {
  const length = end - start;
  const known = words[length];
  if (known !== undefined && startsWith(bytes, start, known.bytes)) return known.text;
  const text = bytes.toString('latin1', start, end);
  if (length < words.length) words[length] = { bytes: Buffer.from(text), text };
  return text;
}

function startsWith(bytes: Buffer, start: number, other: Buffer): boolean {
  for (let i = 0; i < other.length; i++) if (bytes[start + i] !== other[i]) return false;
  return true;
}
