import { hash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';

export interface KeySource {
  readonly keys: readonly string[];
  /** One key a line; empty lines and lines that begin with `#` are skipped. */
  readonly file: string | undefined;
  readonly option: string;
}

/** The characters of a header value. */
const KEY = /^[\x21-\x7e]+$/;

/** The argument of `KeySet.has`. */
export const digestOf = (key: string): Buffer => hash('sha256', key, 'buffer');

/** Accepted keys, stored as digests: a comparison takes the same time for every key, and no key can be printed. */
export class KeySet {
  readonly #source: KeySource;
  #digests: readonly Buffer[] = [];
  #first = '';

  constructor(source: KeySource) {
    this.#source = source;
    this.prepare()();
  }

  get isEmpty(): boolean {
    return this.#digests.length === 0;
  }

  /** The first key, for requests to other servers; '' without keys. */
  get first(): string {
    return this.#first;
  }

  has(digest: Buffer): boolean {
    let isKnown = false;
    // No early return: the time must not show how many keys precede the right one.
    for (const known of this.#digests) if (timingSafeEqual(known, digest)) isKnown = true;
    return isKnown;
  }

  /** Reads the file again. Throws an error without the keys. @returns applies the keys */
  prepare(): () => void {
    const { keys, file } = this.#source;
    const all = file === undefined ? keys : [...keys, ...this.#readFile(file)];
    const digests = all.map(digestOf);
    return () => {
      this.#digests = digests;
      this.#first = all[0] ?? '';
    };
  }

  #readFile(file: string): string[] {
    const { option } = this.#source;
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      throw new Error(`${option} ${file}: not readable (${(error as NodeJS.ErrnoException).code}).`, { cause: error });
    }
    const lines = text.split('\n').map((line) => line.trim());
    const keys = lines.filter((line) => line !== '' && !line.startsWith('#'));
    const bad = keys.find((key) => !KEY.test(key));
    if (bad !== undefined) {
      throw new Error(`${option} ${file}: line ${lines.indexOf(bad) + 1} is not a key: visible ASCII, no spaces.`);
    }
    // An empty file must not turn access control off.
    if (keys.length === 0) throw new Error(`${option} ${file}: no key in it.`);
    return keys;
  }
}
